#include "engine_side/reload/commit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine_side/reload/strided.h"
#include "tests/reload/rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Rig;

void FillStaging(Rig& rig) {
  std::uint32_t next = 1;
  for (const KernelTensor& tensor : rig.layout.tensors()) {
    for (std::byte& byte : rig.staging.BytesOf(tensor)) byte = static_cast<std::byte>((next = next * 48271U) >> 16);
  }
}

TEST(Commit, WritesEveryBufferAndNothingAroundThem) {
  Rig rig({.recipe = "fp8_per_block"});
  FillStaging(rig);
  const Digest table = rig.captured.TableDigest();
  Commit(rig.layout, rig.staging, rig.captured, rig.pool, rig.failpoints);
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Staged()), IsEmpty());
  EXPECT_TRUE(rig.engine.CanariesAreAlive());
  EXPECT_EQ(rig.captured.TableDigest(), table);
  EXPECT_EQ(rig.captured.ServedDigest(), rig.staging.DigestOfAll(rig.layout));
}

TEST(Commit, AMovedPointerIsRefusedBeforeTheFirstByte) {
  Rig rig;
  FillStaging(rig);
  const auto before = rig.engine.Served();
  rig.engine.table().back().address += 64;
  EXPECT_THAT(ErrorOf([&] { Commit(rig.layout, rig.staging, rig.captured, rig.pool, rig.failpoints); }),
              HasSubstr("'" + rig.engine.table().back().name + "'"));
  rig.engine.table().back().address -= 64;
  EXPECT_THAT(Differences(rig.engine.Served(), before), IsEmpty());
  EXPECT_TRUE(rig.engine.CanariesAreAlive());
}

TEST(Commit, FollowsForeignStrides) {
  Rig rig;
  FillStaging(rig);
  // Every matrix column-major, every vector in every third element: as other engines hold them.
  std::vector<CapturedBuffer> table;
  std::vector<std::vector<std::byte>> memory;
  for (CapturedBuffer buffer : rig.engine.table()) {
    buffer.strides =
        buffer.shape.size() == 2 ? std::vector<std::int64_t>{1, buffer.shape[0] + 3} : std::vector<std::int64_t>{3};
    memory.emplace_back(ExtentBytes(buffer), std::byte{0x5C});
    buffer.address = memory.back().data();
    table.push_back(std::move(buffer));
  }
  const CapturedBuffers strided = CapturedBuffers::Adopt(table);
  const KernelLayout layout(rig.plan, *rig.recipe, strided);
  Commit(layout, rig.staging, strided, rig.pool, rig.failpoints);
  EXPECT_EQ(strided.ServedDigest(), rig.staging.DigestOfAll(layout));
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto written = static_cast<std::size_t>(NumBytes(table[i].dtype, table[i].shape));
    const auto gaps = memory[i].size() - written;
    EXPECT_GE(static_cast<std::size_t>(std::ranges::count(memory[i], std::byte{0x5C})), gaps) << table[i].name;
    for (std::int64_t row = table[i].shape[0]; table[i].shape.size() == 2 && row < table[i].strides[1]; ++row) {
      const std::byte* gap = memory[i].data() + row * BitsPerElement(table[i].dtype) / 8;
      EXPECT_EQ(*gap, std::byte{0x5C}) << "below the first column of " << table[i].name;
    }
  }
}

TEST(Strided, VisitsRunsInRowMajorOrder) {
  std::vector<std::byte> memory(200);
  const auto runs = [&](Shape shape, std::vector<std::int64_t> strides) {
    std::string out;
    ForEachRun({"b", memory.data(), DType::kBF16, std::move(shape), std::move(strides), {}},
               [&](std::byte* address, std::size_t offset, std::size_t bytes) {
                 out += std::to_string(address - memory.data()) + ":" + std::to_string(offset) + "+" +
                        std::to_string(bytes) + " ";
               });
    return out;
  };
  EXPECT_EQ(runs({2, 3}, {}), "0:0+12 ");
  EXPECT_EQ(runs({2, 3}, {3, 1}), "0:0+12 ");
  EXPECT_EQ(runs({2, 3}, {8, 1}), "0:0+6 16:6+6 ");
  EXPECT_EQ(runs({2, 2}, {1, 4}), "0:0+2 8:2+2 2:4+2 10:6+2 ");
  EXPECT_EQ(runs({2, 1, 3}, {8, 99, 1}), "0:0+6 16:6+6 ") << "the stride of a dimension of one says nothing";
  EXPECT_EQ(runs({}, {}), "0:0+2 ");
  EXPECT_EQ(runs({0, 3}, {3, 1}), "");
}

}  // namespace
}  // namespace layercast
