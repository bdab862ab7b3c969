// How a chunk is cut into reads, against a slow and obvious list of its bytes.
#include "src/transport/ucx/one_sided/read_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>

namespace layercast::ucx_channel {
namespace {

using Byte = std::pair<std::uint32_t, std::uint64_t>;  // tensor and offset

std::vector<Byte> BytesOf(const std::vector<Region>& regions) {
  std::vector<Byte> bytes;
  for (const Region& region : regions) {
    for (std::uint64_t row = 0; row < region.rows; ++row) {
      for (std::uint64_t i = 0; i < region.row_bytes; ++i) {
        bytes.emplace_back(region.tensor, region.offset + row * region.stride + i);
      }
    }
  }
  return bytes;
}

TEST(ReadPlan, BringsEveryByteToItsPlace) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<Region> regions(random() % 5);
    for (Region& region : regions) {
      region = {static_cast<std::uint32_t>(random() % 3), random() % 50, random() % 6, random() % 5, 0};
      region.stride = region.row_bytes + random() % 3;
    }
    const std::uint64_t most = 1 + random() % 9;
    std::vector<Byte> brought;
    ReadPlan plan(regions);
    std::set<std::uint32_t> tensors;
    while (!plan.done()) {
      const ReadPlan::Run run = plan.Take(most);
      EXPECT_EQ(run.to, brought.size());
      EXPECT_GT(run.bytes, 0U);
      EXPECT_LE(run.bytes, most);
      tensors.insert(run.tensor);
      for (std::uint64_t i = 0; i < run.bytes; ++i) brought.emplace_back(run.tensor, run.offset + i);
    }
    EXPECT_EQ(brought, BytesOf(regions));
    EXPECT_EQ(plan.tensors(), tensors);
  }
}

TEST(ReadPlan, ReadsRowsWithoutGapsAtOnce) {
  ReadPlan plan(std::vector<Region>{{1, 10, 100, 50, 100}});
  EXPECT_EQ(plan.Take(1 << 20).bytes, 5000U);
  EXPECT_TRUE(plan.done());
}

}  // namespace
}  // namespace layercast::ucx_channel
