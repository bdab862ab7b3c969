#include "engine_side/reload/work/host_work.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/reload/work/fuse_and_shard.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using testing::Rig;

constexpr std::uint16_t kOneBf16 = 0x3F80;
constexpr std::uint16_t kNanBf16 = 0x7FC0;

// A piece of `model.norm.weight`, for errors, and values for it.
class HostWorkTest : public ::testing::Test {
 protected:
  SourcePiece PieceOf(const Placement& placement, const TensorSpec& parameter, Piece piece) const {
    return {rig_.plan, rig_.manifest, placement, parameter, piece, DType::kBF16};
  }
  const Placement& norm() const { return rig_.plan.placements()[rig_.PlacementOf("model.norm.weight")]; }
  static RegionView ViewOf(const std::vector<std::uint16_t>& values) {
    return AsView(std::as_bytes(std::span(values)));
  }

  Rig rig_{{}};
  WorkerPool pool_{3};
  HostMemory memory_;
  HostWork work_{memory_, pool_};
};

TEST_F(HostWorkTest, WhatGoesToTheSinkAsItIsMustBeFinite) {
  const TensorSpec& parameter = rig_.plan.parameters()[norm().parameter].spec;
  std::vector<std::uint16_t> values(100, kOneBf16);
  std::vector<std::byte> memory(static_cast<std::size_t>(parameter.num_bytes()));
  const SourcePiece piece = PieceOf(norm(), parameter, {0, 40, 240});
  EXPECT_NO_THROW(work_.CopyArrived(piece, ViewOf(values), memory.data()));
  values[9] = kNanBf16;
  EXPECT_EQ(ErrorOf([&] { work_.CopyArrived(piece, ViewOf(values), memory.data()); }),
            "layer model.norm: 'model.norm.weight': expected finite values, got NaN at element 29");
  EXPECT_NO_THROW(work_.FuseAndShard(piece, ViewOf(values), memory.data()));  // a later stage looks at it
}

// Several threads place a large piece: it is what one makes of it, whatever the order of its elements.
TEST_F(HostWorkTest, ALargePieceIsPlacedAsOneThreadPlacesIt) {
  constexpr std::int64_t kRows = 1000;
  constexpr std::int64_t kCols = 1024;
  const TensorSpec straight{"weight", DType::kBF16, {kRows, kCols + 8}};
  const TensorSpec turned{"weight", DType::kF32, {kCols, kRows}};
  std::vector<std::uint16_t> values(kRows * kCols * 3 / 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(0x3B00U | (i * 7 & 0xFFU));
  const RegionView packed = AsView(std::as_bytes(std::span(values)).first(kRows * kCols * 2));
  const RegionView apart{packed.base, kCols * 2, kRows, kCols * 3};
  for (const auto& [parameter, transposed] : {std::pair(straight, false), {turned, true}}) {
    Placement placement = norm();
    placement.source = Box::Whole({kRows, kCols});
    placement.destination = transposed ? Box::Whole(turned.shape) : Box::Slice(straight.shape, 1, 8, kCols);
    placement.order.transposed = transposed;
    for (const RegionView& view : {packed, apart}) {
      const Piece piece{0, 0, view.num_bytes()};
      std::vector<std::byte> expected(static_cast<std::size_t>(parameter.num_bytes()));
      ASSERT_TRUE(FuseAndShard(placement, piece, DType::kBF16, view, parameter, expected.data()));
      std::vector<std::byte> got(expected.size());
      work_.CopyArrived(PieceOf(placement, parameter, piece), view, got.data());
      EXPECT_EQ(got, expected);
    }
  }
}

}  // namespace
}  // namespace layercast
