// The sharding arithmetic of linear layers, embeddings and norms: fixed vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"
#include "tests/engine_side/model/layers/moves.h"
#include "tests/support/error_of.h"
#include "tests/support/test_weights.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Move;
using testing::Moves;
using testing::Range;
using testing::Rank;

TEST(ColumnParallelLinear, TakesItsRowsOfWeightAndBias) {
  const ColumnParallelLinear layer(Rank(1, 2), 3, 8, true);
  EXPECT_THAT(Moves(layer, "weight", "", {8, 3}), ElementsAre(Move{{4, 8}, {0, 4}}));
  EXPECT_THAT(Moves(layer, "bias", "", {8}), ElementsAre(Move{{4, 8}, {0, 4}}));
}

TEST(MergedColumnParallelLinear, TakesItsPartOfEachShard) {
  const std::vector<MergedShard> shards = {{"gate_proj", 6}, {"up_proj", 4}};
  const MergedColumnParallelLinear first(Rank(0, 2), 3, shards, false);
  EXPECT_THAT(Moves(first, "weight", "0", {6, 3}), ElementsAre(Move{{0, 3}, {0, 3}}));
  EXPECT_THAT(Moves(first, "weight", "1", {4, 3}), ElementsAre(Move{{0, 2}, {3, 5}}));
  const MergedColumnParallelLinear second(Rank(1, 2), 3, shards, false);
  EXPECT_THAT(Moves(second, "weight", "0", {6, 3}), ElementsAre(Move{{3, 6}, {0, 3}}));
  EXPECT_THAT(Moves(second, "weight", "1", {4, 3}), ElementsAre(Move{{2, 4}, {3, 5}}));
}

TEST(MergedColumnParallelLinear, SplitsATensorThatIsFusedOnDisk) {
  const MergedColumnParallelLinear layer(Rank(1, 2), 3, {{"gate_proj", 6}, {"up_proj", 4}}, false);
  EXPECT_THAT(Moves(layer, "weight", "", {10, 3}), ElementsAre(Move{{3, 6}, {0, 3}}, Move{{8, 10}, {3, 5}}));
}

TEST(QKVParallelLinear, ReplicatesKeyAndValueHeadsOverNeighbouringRanks) {
  // 8 heads, 2 key/value heads of 4, on 4 ranks.
  for (int rank = 0; rank < 4; ++rank) {
    const QKVParallelLinear layer(Rank(rank, 4), 3, {8, 2, 4, 0}, true);
    const std::int64_t kv = rank < 2 ? 0 : 4;
    EXPECT_THAT(Moves(layer, "weight", "q", {32, 3}), ElementsAre(Move{{8 * rank, 8 * rank + 8}, {0, 8}}));
    EXPECT_THAT(Moves(layer, "weight", "k", {8, 3}), ElementsAre(Move{{kv, kv + 4}, {8, 12}}));
    EXPECT_THAT(Moves(layer, "weight", "v", {8, 3}), ElementsAre(Move{{kv, kv + 4}, {12, 16}}));
    EXPECT_THAT(Moves(layer, "bias", "v", {8}), ElementsAre(Move{{kv, kv + 4}, {12, 16}}));
    EXPECT_EQ(layer.parameters()[0].spec.shape, (Shape{16, 3}));
  }
}

TEST(QKVParallelLinear, KeepsValueHeadsOfAnotherSize) {
  const QKVParallelLinear layer(Rank(1, 2), 3, {8, 8, 4, 2}, false);
  EXPECT_THAT(Moves(layer, "weight", "q", {32, 3}), ElementsAre(Move{{16, 32}, {0, 16}}));
  EXPECT_THAT(Moves(layer, "weight", "k", {32, 3}), ElementsAre(Move{{16, 32}, {16, 32}}));
  EXPECT_THAT(Moves(layer, "weight", "v", {16, 3}), ElementsAre(Move{{8, 16}, {32, 40}}));
  EXPECT_EQ(layer.parameters()[0].spec.shape, (Shape{40, 3}));
}

TEST(QKVParallelLinear, SplitsRealModels) {
  const QKVParallelLinear llama3_8b(Rank(3, 8), 4096, {32, 8, 128, 0}, false);
  EXPECT_THAT(Moves(llama3_8b, "weight", "q", {4096, 4096}), ElementsAre(Move{{1536, 2048}, {0, 512}}));
  EXPECT_THAT(Moves(llama3_8b, "weight", "k", {1024, 4096}), ElementsAre(Move{{384, 512}, {512, 640}}));
  EXPECT_THAT(Moves(llama3_8b, "weight", "v", {1024, 4096}), ElementsAre(Move{{384, 512}, {640, 768}}));
  const QKVParallelLinear qwen25_05b(Rank(1, 2), 896, {14, 2, 64, 0}, true);
  EXPECT_THAT(Moves(qwen25_05b, "weight", "q", {896, 896}), ElementsAre(Move{{448, 896}, {0, 448}}));
  EXPECT_THAT(Moves(qwen25_05b, "weight", "k", {128, 896}), ElementsAre(Move{{64, 128}, {448, 512}}));
}

TEST(QKVParallelLinear, SplitsATensorThatIsFusedOnDiskByItsTrueSizes) {
  // On disk a key/value head is there once, although two ranks hold it.
  const QKVParallelLinear layer(Rank(3, 4), 3, {8, 2, 4, 0}, false);
  EXPECT_THAT(Moves(layer, "weight", "", {48, 3}),
              ElementsAre(Move{{24, 32}, {0, 8}}, Move{{36, 40}, {8, 12}}, Move{{44, 48}, {12, 16}}));
}

TEST(RowParallelLinear, TakesItsColumnsAndTheWholeBias) {
  const RowParallelLinear layer(Rank(1, 2), 8, 3, true);
  EXPECT_THAT(Moves(layer, "weight", "", {3, 8}, 1), ElementsAre(Move{{4, 8}, {0, 4}}));
  EXPECT_THAT(Moves(layer, "weight", "", {3, 8}, 0), ElementsAre(Move{{0, 3}, {0, 3}}));
  EXPECT_THAT(Moves(layer, "bias", "", {3}), ElementsAre(Move{{0, 3}, {0, 3}}));
}

TEST(ParallelRMSNorm, HoldsItsPartOrThatOfItsNeighbours) {
  const ParallelRMSNorm queries(Rank(3, 4), 32, 4, 1e-6);
  EXPECT_THAT(Moves(queries, "weight", "", {32}), ElementsAre(Move{{24, 32}, {0, 8}}));
  EXPECT_EQ(queries.total_size(), 32);
  for (int rank = 0; rank < 4; ++rank) {  // two key heads on four ranks
    const ParallelRMSNorm keys(Rank(rank, 4), 16, 2, 1e-6);
    const std::int64_t first = rank < 2 ? 0 : 8;
    EXPECT_THAT(Moves(keys, "weight", "", {16}), ElementsAre(Move{{first, first + 8}, {0, 8}}));
    EXPECT_EQ(keys.total_size(), 32);
  }
  EXPECT_THAT(ErrorOf([&] { Moves(queries, "weight", "", {8}); }), HasSubstr("expected [32] f32, got [8] f32"));
}

void ExpectRange(const VocabRange& range, Range org, Range added, std::int64_t org_rows, std::int64_t rows) {
  EXPECT_EQ((Range{range.org_begin, range.org_end}), org);
  EXPECT_EQ((Range{range.added_begin, range.added_end}), added);
  EXPECT_EQ(range.org_rows, org_rows);
  EXPECT_EQ(range.rows, rows);
}

TEST(VocabParallelEmbedding, PadsTheVocabularyAndWhatWasAddedToIt) {
  ExpectRange(VocabRange::Of({0, 2}, 1026, 1010), {0, 512}, {1010, 1026}, 512, 544);
  ExpectRange(VocabRange::Of({1, 2}, 1026, 1010), {512, 1010}, {1026, 1026}, 512, 544);
  ExpectRange(VocabRange::Of({2, 4}, 100, 100), {64, 96}, {100, 100}, 32, 32);
  ExpectRange(VocabRange::Of({3, 4}, 100, 100), {96, 100}, {100, 100}, 32, 32);
  ExpectRange(VocabRange::Of({7, 8}, 100, 100), {100, 100}, {100, 100}, 16, 16);
  ExpectRange(VocabRange::Of({7, 8}, 32001, 32001), {28056, 32001}, {32001, 32001}, 4008, 4008);
  ExpectRange(VocabRange::Of({7, 8}, 50272, 50272), {44016, 50272}, {50272, 50272}, 6288, 6288);
}

TEST(VocabParallelEmbedding, LeavesPaddingAndAddedRowsToZero) {
  const VocabParallelEmbedding layer(Rank(1, 2), 1026, 4, 1010);
  EXPECT_THAT(Moves(layer, "weight", "", {1010, 4}), ElementsAre(Move{{512, 1010}, {0, 498}}));
  EXPECT_THAT(layer.Padding(0), ElementsAre(Box::Slice({544, 4}, 0, 498, 46)));
  const VocabParallelEmbedding whole(Rank(0, 1), 128, 4);
  EXPECT_TRUE(whole.Padding(0).empty());
}

TEST(VocabParallelEmbedding, AnswersForARankThatHoldsPaddingAlone) {
  const ParallelLMHead layer(Rank(7, 8), 100, 4, true);
  EXPECT_EQ(layer.Place("weight", "", {"weight", DType::kF32, {100, 4}}).at(0).source.num_elements(), 0);
  EXPECT_THAT(layer.Padding(0), ElementsAre(Box::Whole({16, 4})));
  EXPECT_THAT(layer.Padding(1), ElementsAre(Box::Whole({16})));
}

TEST(Layers, SayWhichWeightsARecipeAppliesTo) {
  EXPECT_TRUE(QKVParallelLinear(Rank(0, 1), 4, {1, 1, 4, 0}, true).parameters()[0].quantize);
  EXPECT_FALSE(QKVParallelLinear(Rank(0, 1), 4, {1, 1, 4, 0}, true).parameters()[1].quantize);
  EXPECT_TRUE(ReplicatedLinear(Rank(0, 1), 4, 4, false).parameters()[0].quantize);
  EXPECT_FALSE(ReplicatedLinear({{0, 1}, DType::kF32, false}, 4, 4, false).parameters()[0].quantize);
  EXPECT_FALSE(VocabParallelEmbedding(Rank(0, 1), 64, 4).parameters()[0].quantize);
  EXPECT_FALSE(ParallelLMHead(Rank(0, 1), 64, 4, false).parameters()[0].quantize);
  EXPECT_FALSE(RMSNorm(Rank(0, 1), 4).parameters()[0].quantize);
}

TEST(Layers, NameWhatCannotBeDivided) {
  EXPECT_EQ(ErrorOf([] { QKVParallelLinear(Rank(0, 4), 896, {14, 2, 64, 0}, true); }),
            "num_attention_heads 14 is not divisible by tp_size 4");
  EXPECT_EQ(ErrorOf([] { QKVParallelLinear(Rank(0, 2), 8, {6, 3, 4, 0}, true); }),
            "num_key_value_heads 3 is not divisible by tp_size 2");
  EXPECT_EQ(ErrorOf([] { QKVParallelLinear(Rank(0, 6), 8, {12, 4, 4, 0}, true); }),
            "tp_size 6 is not divisible by num_key_value_heads 4");
  EXPECT_EQ(ErrorOf([] { MergedColumnParallelLinear(Rank(0, 4), 8, {{"gate_proj", 6}}, true); }),
            "gate_proj 6 is not divisible by tp_size 4");
  EXPECT_EQ(ErrorOf([] { RowParallelLinear(Rank(0, 3), 8, 4, true); }), "input_size 8 is not divisible by tp_size 3");
  EXPECT_EQ(ErrorOf([] { VocabParallelEmbedding(Rank(0, 3), 100, 4); }),
            "padded vocab_size 128 is not divisible by tp_size 3");
  EXPECT_EQ(ErrorOf([] { RowParallelLinear(Rank(2, 2), 8, 4, true); }),
            "expected tp_rank from 0 to tp_size - 1, got tp_rank 2 of tp_size 2");
}

TEST(Layers, SayWhatTheyExpectedAndWhatTheyGot) {
  const MergedColumnParallelLinear gate_up(Rank(0, 2), 4, {{"gate_proj", 6}, {"up_proj", 6}}, false);
  const auto place = [&](const char* name, const char* shard, DType dtype, Shape shape) {
    return ErrorOf([&] { (void)gate_up.Place(name, shard, {name, dtype, std::move(shape)}); });
  };
  EXPECT_EQ(place("weight", "1", DType::kF32, {6, 2}), "expected [6, 4] f32, got [6, 2] f32");
  EXPECT_EQ(place("weight", "", DType::kF32, {6, 4}), "expected [12, 4] f32, got [6, 4] f32");
  EXPECT_EQ(place("weight", "1", DType::kI8, {6, 4}), "expected [6, 4] f32, got [6, 4] i8");
  EXPECT_EQ(place("weight", "1", DType::kF8E4M3, {6, 4}), "expected [6, 4] f32, got [6, 4] f8_e4m3");
  EXPECT_THAT(place("weight", "2", DType::kF32, {6, 4}),
              HasSubstr("Shard id should be between 0 and 1. Got shard id 2."));
  EXPECT_THAT(place("bias", "1", DType::kF32, {6}), HasSubstr("has no parameter 'bias'"));
  const QKVParallelLinear qkv(Rank(0, 1), 4, {1, 1, 4, 0}, false);
  EXPECT_THAT(ErrorOf([&] { (void)qkv.Place("weight", "w1", {"weight", DType::kF32, {4, 4}}); }),
              HasSubstr("Shard id for QKVParallelLinear should be 'q', 'k', or 'v', got shard id w1."));
}

}  // namespace
}  // namespace layercast
