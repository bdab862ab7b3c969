// Rows of a rank, against a walk over all ranks row by row.
#include "trainer_side/row_shard.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "tests/support/test_weights.h"

namespace layercast {
namespace {

testing::Weights Whole() {
  testing::Weights weights;
  weights.AddRandom({"matrix", DType::kBF16, {7, 3}}, 1);
  weights.AddRandom({"stack", DType::kF32, {2, 3, 5}}, 2);
  weights.AddRandom({"vector", DType::kBF16, {4}}, 3);
  weights.AddRandom({"scalar", DType::kF32, {}}, 4);
  return weights;
}

Weights AsPublished(const testing::Weights& weights) {
  Weights published{.specs = {}, .walk = [&](std::span<const std::string>) { return weights.Stream(); }};
  for (std::size_t i = 0; i < weights.size(); ++i) published.specs.push_back(weights.spec(i));
  return published;
}

// What a rank yields: each tensor's offsets, shape and bytes.
struct Shard {
  Shape whole, offsets, shape;
  std::vector<std::byte> bytes;
};

std::map<std::string, Shard> WalkOf(const Weights& weights) {
  std::map<std::string, Shard> shards;
  std::size_t next = 0;
  const auto walk = weights.walk({});
  while (const auto named = walk->Next()) {
    EXPECT_EQ(weights.specs.at(next++), (TensorSpec{named->name, named->tensor.dtype, named->tensor.shape}));
    Shard& shard = shards[named->name];
    if (named->part) {
      shard.whole = named->part->whole;
      shard.offsets = named->part->offsets;
    }
    shard.shape = named->tensor.shape;
    shard.bytes.assign(named->tensor.data, named->tensor.data + named->tensor.num_bytes());
  }
  EXPECT_EQ(next, weights.specs.size());
  return shards;
}

TEST(RowShard, OfAllRanksAreTheRowsInTheirOrderAsTorchChunksThem) {
  // rows, ranks -> rows of each rank: torch.chunk's.
  const std::map<std::pair<std::int64_t, int>, std::vector<std::int64_t>> expected = {
      {{7, 2}, {4, 3}},          {{2, 2}, {1, 1}},          {{4, 2}, {2, 2}},
      {{7, 3}, {3, 3, 1}},       {{2, 3}, {1, 1, 0}},       {{4, 3}, {2, 2, 0}},
      {{7, 5}, {2, 2, 2, 1, 0}}, {{2, 5}, {1, 1, 0, 0, 0}}, {{4, 5}, {1, 1, 1, 1, 0}}};
  const testing::Weights whole = Whole();
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::map<std::string, Shard>> of_rank;
    for (int rank = 0; rank < ranks; ++rank) of_rank.push_back(WalkOf(RowShard(AsPublished(whole), {rank, ranks})));
    for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
      const TensorSpec& spec = whole.spec(i);
      std::vector<std::byte> bytes;
      std::int64_t first = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shard& shard = of_rank[static_cast<std::size_t>(rank)].at(spec.name);
        EXPECT_EQ(shard.whole, spec.shape);
        EXPECT_EQ(shard.shape[0], expected.at({spec.shape[0], ranks}).at(static_cast<std::size_t>(rank)));
        EXPECT_EQ(shard.offsets[0], first) << spec.name << " rank " << rank;
        first += shard.shape[0];
        bytes.insert(bytes.end(), shard.bytes.begin(), shard.bytes.end());
      }
      EXPECT_EQ(bytes, whole.bytes(i)) << spec.name;
    }
    EXPECT_EQ(of_rank[0].at("scalar").bytes, whole.bytes(3));
    EXPECT_FALSE(of_rank[1].contains("scalar"));
  }
}

TEST(RowShard, OfOneRankIsEverythingAndNoPart) {
  const testing::Weights whole = Whole();
  for (const auto& [name, shard] : WalkOf(RowShard(AsPublished(whole), {}))) EXPECT_TRUE(shard.whole.empty()) << name;
}

}  // namespace
}  // namespace layercast
