// What a device does with the views of one chunk, wherever in it they begin. Linked with a device that is played, and
// with a real one.
#include "engine_side/reload/work/device_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/work/fuse_and_shard.h"
#include "tests/support/device/device_test.h"
#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

constexpr std::size_t kBlockBytes = 512;  // so that a view goes through it in parts

using DeviceWorkTest = testing::DeviceTest;

// Behind tensors of odd sizes, bytes of wider elements begin anywhere: kernels would read them where they are not
// aligned, which ends all work on a device.
TEST_F(DeviceWorkTest, ScattersElementsThatBeginAnywhereInAChunk) {
  const auto stream = device_->Opener()(device_->device());
  WorkerPool pool(1);
  DeviceWork work(*stream, pool, kBlockBytes);
  const Shape shape{24, 18};
  Placement placement;
  placement.source = placement.destination = Box::Whole(shape);
  placement.source.extent = {18, 24};
  placement.order.transposed = true;  // so that it is scattered
  std::mt19937 random(1);
  const testing::Rig rig;
  for (const auto& [source, dtype] : {std::pair(DType::kF16, DType::kF16), std::pair(DType::kF16, DType::kF32),
                                      std::pair(DType::kF32, DType::kF32), std::pair(DType::kF64, DType::kBF16)}) {
    const TensorSpec parameter{"w", dtype, shape};
    std::vector<std::byte> bytes(static_cast<std::size_t>(NumBytes(source, shape)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3f);  // finite, in every type
    const Piece piece{0, 0, bytes.size()};
    std::vector<std::byte> expected(static_cast<std::size_t>(parameter.num_bytes()));
    FuseAndShard(placement, piece, source, AsView(bytes), parameter, expected.data());
    for (const std::size_t offset : {0U, 1U, 2U, 4U, 5U}) {
      const Buffer chunk(work.chunks().resource(), offset + bytes.size());
      const Buffer memory(stream->memory(), expected.size());
      work.chunks().Await(work.chunks().Now());
      device_->Carry(AsView(bytes), chunk.data() + offset);
      const RegionView view = PackedAt(chunk.data() + offset, bytes.size(), 1);
      work.FuseAndShard({rig.plan, rig.manifest, placement, parameter, piece, source}, view, memory.data());
      work.EndLayer([] {});
      work.Finish();
      std::vector<std::byte> brought(expected.size());
      device_->Carry(PackedAt(memory.data(), brought.size(), 1), brought.data());
      EXPECT_TRUE(brought == expected) << Name(source) << " to " << Name(dtype) << ", " << offset
                                       << " bytes into the chunk";
    }
  }
}

// Long rows of the type that they keep: a device copies them as such.
TEST_F(DeviceWorkTest, PutsWholeRowsIntoColumnsOfAParameter) {
  const auto stream = device_->Opener()(device_->device());
  WorkerPool pool(1);
  DeviceWork work(*stream, pool, std::size_t{1} << 20);
  const TensorSpec parameter{"w", DType::kF16, {5, 700}};
  Placement placement;
  placement.source = Box::Whole({4, 400});
  placement.destination = Box::Whole({4, 400});
  placement.destination.begin[0] = 1;
  placement.destination.begin[1] = 300;
  std::vector<std::byte> bytes(4 * 400 * 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
  const Piece piece{0, 0, bytes.size()};
  std::vector<std::byte> expected(static_cast<std::size_t>(parameter.num_bytes()));
  FuseAndShard(placement, piece, DType::kF16, AsView(bytes), parameter, expected.data());
  const Buffer chunk(work.chunks().resource(), bytes.size());
  const Buffer memory(stream->memory(), expected.size());
  stream->Fill(memory.data(), std::byte{0}, memory.size());
  work.chunks().Await(work.chunks().Now());
  device_->Carry(AsView(bytes), chunk.data());
  const testing::Rig rig;
  work.FuseAndShard({rig.plan, rig.manifest, placement, parameter, piece, DType::kF16},
                    PackedAt(chunk.data(), bytes.size(), 1), memory.data());
  work.Finish();
  std::vector<std::byte> brought(expected.size());
  device_->Carry(PackedAt(memory.data(), brought.size(), 1), brought.data());
  EXPECT_TRUE(brought == expected);
}

// Nothing of a layer is closed in which something is wrong.
void ExpectRefused(DeviceWork& work, const std::string& what) {
  bool closed = false;
  work.EndLayer([&] { closed = true; });
  EXPECT_THAT(testing::ErrorOf([&] { work.Finish(); }, ErrorCode::kCorrupt), ::testing::HasSubstr(what));
  EXPECT_FALSE(closed);
  work.Drop();
  work.EndLayer([&] { closed = true; });
  work.Finish();
  EXPECT_TRUE(closed) << "the next one is good";
}

TEST_F(DeviceWorkTest, NamesWhatIsWrongInRowsThatArriveAndInWhatIsStoredAsItIs) {
  const auto stream = device_->Opener()(device_->device());
  WorkerPool pool(1);
  DeviceWork work(*stream, pool, kBlockBytes);
  const testing::Rig rig;
  const PlacedMatrix place{rig.plan, rig.manifest, 0, 0};
  constexpr std::int64_t kHeight = 8;  // of which two fit a block
  constexpr std::int64_t kWidth = 100;
  std::vector<std::uint16_t> values(kHeight * kWidth, 0x3F80);  // 1, in bf16
  values[5 * kWidth + 7] = 0x7FC0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  const Buffer codes(stream->memory(), values.size());
  const Buffer scales(stream->memory(), kHeight * sizeof(float));
  const KernelTensorView outputs[] = {{kHeight, kWidth, codes.data()}, {kHeight, 1, scales.data()}};
  work.QuantizeArrived(*MakeRecipe("fp8_per_channel"), {DType::kBF16, bytes.data(), kHeight, kWidth, kWidth * 2}, 0, {},
                       outputs, place);
  ExpectRefused(work,
                "layer model.embed_tokens: 'model.embed_tokens.weight': expected finite values, got NaN at row 5, "
                "column 7");

  const Buffer stored(stream->memory(), bytes.size());
  work.Write(AsView(bytes), stored.data());
  work.CheckStored({"w", DType::kBF16, {kHeight, kWidth}}, stored.span(), place);
  ExpectRefused(work,
                "layer model.embed_tokens: 'model.embed_tokens.weight': expected finite values, got NaN at row 5, "
                "column 7");
}

// In a block behind the first, of a piece that does not begin with the tensor.
TEST_F(DeviceWorkTest, NamesAValueThatACastMakesInfiniteByItsPlaceInTheWholeTensor) {
  const auto stream = device_->Opener()(device_->device());
  WorkerPool pool(1);
  DeviceWork work(*stream, pool, kBlockBytes);
  const testing::Rig rig({.parallel = {1, 2}, .dtype = DType::kF16});
  const std::uint32_t index = rig.PlacementOf("model.layers.0.self_attn.k_proj.weight");
  const Placement& placement = rig.plan.placements()[index];  // rows 64 to 127, of 128 columns
  const TensorSpec& parameter = rig.plan.parameters()[placement.parameter].spec;
  constexpr std::uint64_t kRow = 128 * 2;
  std::vector<std::uint16_t> values(10 * 128, 0x3F80);  // 1, in bf16
  values[7 * 128 + 5] = 0xC789;                         // -70144
  const Buffer memory(stream->memory(), static_cast<std::size_t>(parameter.num_bytes()));
  work.FuseAndShard({rig.plan, rig.manifest, placement, parameter, {index, 20 * kRow, 30 * kRow}, DType::kBF16},
                    AsView(std::as_bytes(std::span(values))), memory.data());
  ExpectRefused(work,
                "'model.layers.0.self_attn.k_proj.weight': row 91, column 5 holds -70144 (bf16), which is beyond "
                "-65504, the largest finite f16");
}

// A channel's kernels may run by then, which wait for their peers, and pinned memory for them.
TEST_F(DeviceWorkTest, TakesItsPinnedBlocksBeforeAnythingArrives) {
  const auto stream = device_->Opener()(device_->device());
  WorkerPool pool(1);
  DeviceWork work(*stream, pool, kBlockBytes);
  const std::size_t before = device_->allocations();
  const std::vector<std::byte> bytes(8 * kBlockBytes, std::byte{3});
  std::byte* const there = device_->Allocate(bytes.size());
  work.Write(AsView(bytes), there);
  std::vector<std::byte> brought;
  work.download().Read(there, bytes.size(), [&](std::span<const std::byte> part) {
    brought.insert(brought.end(), part.begin(), part.end());
  });
  work.download().Finish();
  EXPECT_TRUE(brought == bytes);
  EXPECT_EQ(device_->allocations(), before);
}

}  // namespace
}  // namespace layercast
