// Every layer's sharding arithmetic: fixed vectors, and that all ranks together hold the original.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/embedding.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/linear.h"
#include "layercast/model/mamba_mixer.h"
#include "layercast/model/norm.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"
#include "tests/support/weights.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tree;
using testing::Weights;

using Range = std::pair<std::int64_t, std::int64_t>;

// Source and destination of each piece along `axis`.
struct Move {
  Range source, destination;
  bool operator==(const Move&) const = default;
};
void PrintTo(const Move& move, std::ostream* out) {
  *out << "(" << move.destination.first << "-" << move.destination.second << " <- " << move.source.first << "-"
       << move.source.second << ")";
}

std::vector<Move> Moves(const Module& layer, const std::string& name, const std::string& shard, const Shape& shape,
                        std::size_t axis = 0) {
  std::vector<Move> moves;
  for (const PlacedPiece& piece : layer.Place(name, shard, {name, DType::kF32, shape})) {
    const auto range = [&](const Box& box) { return Range{box.begin[axis], box.begin[axis] + box.extent[axis]}; };
    moves.push_back({range(piece.source), range(piece.destination)});
  }
  return moves;
}

LayerContext Rank(int rank, int size) { return {{rank, size}, DType::kF32, true}; }

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

// --- all ranks together hold the original -----------------------------------------------------------------------

struct RoundTrip {
  std::string name;
  std::function<std::unique_ptr<Module>(const LayerContext&)> make;
  std::vector<TensorSpec> tensors;
};

std::vector<RoundTrip> RoundTrips() {
  const auto f32 = [](const char* name, Shape shape) { return TensorSpec{name, DType::kF32, std::move(shape)}; };
  return {
      {"replicated",
       [](auto& c) { return std::make_unique<ReplicatedLinear>(c, 5, 16, true); },
       {f32("layer.weight", {16, 5}), f32("layer.bias", {16})}},
      {"column",
       [](auto& c) { return std::make_unique<ColumnParallelLinear>(c, 5, 16, true); },
       {f32("layer.weight", {16, 5}), f32("layer.bias", {16})}},
      {"merged",
       [](auto& c) {
         return std::make_unique<MergedColumnParallelLinear>(
             c, 5, std::vector<MergedShard>{{"gate_proj", 16}, {"up_proj", 8}}, true);
       },
       {f32("gate_proj.weight", {16, 5}), f32("up_proj.weight", {8, 5}), f32("gate_proj.bias", {16}),
        f32("up_proj.bias", {8})}},
      {"merged_on_disk",
       [](auto& c) {
         return std::make_unique<MergedColumnParallelLinear>(
             c, 5, std::vector<MergedShard>{{"gate_proj", 16}, {"up_proj", 8}}, false);
       },
       {f32("layer.weight", {24, 5})}},
      {"qkv",
       [](auto& c) { return std::make_unique<QKVParallelLinear>(c, 5, AttentionHeads{8, 2, 4, 3}, true); },
       {f32("q_proj.weight", {32, 5}), f32("k_proj.weight", {8, 5}), f32("v_proj.weight", {6, 5}),
        f32("q_proj.bias", {32}), f32("k_proj.bias", {8}), f32("v_proj.bias", {6})}},
      {"qkv_on_disk",
       [](auto& c) { return std::make_unique<QKVParallelLinear>(c, 5, AttentionHeads{8, 8, 4, 0}, false); },
       {f32("layer.weight", {96, 5})}},
      {"row",
       [](auto& c) { return std::make_unique<RowParallelLinear>(c, 16, 5, true); },
       {f32("layer.weight", {5, 16}), f32("layer.bias", {5})}},
      {"embedding",
       [](auto& c) { return std::make_unique<VocabParallelEmbedding>(c, 100, 5); },
       {f32("layer.weight", {100, 5})}},
      {"lm_head",
       [](auto& c) { return std::make_unique<ParallelLMHead>(c, 100, 5, true); },
       {f32("layer.weight", {100, 5}), f32("layer.bias", {100})}},
      {"norm", [](auto& c) { return std::make_unique<RMSNorm>(c, 7); }, {f32("layer.weight", {7})}},
  };
}

class LayerRoundTrip : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {};

// Loads on every rank, then reads each rank's parameters back through the placements, element by element.
TEST_P(LayerRoundTrip, AllRanksTogetherHoldEveryElementAndReplicasAgree) {
  const RoundTrip trip = RoundTrips().at(std::get<0>(GetParam()));
  const int tp = std::get<1>(GetParam());
  Weights weights;
  for (const TensorSpec& spec : trip.tensors) weights.AddRandom(spec, static_cast<std::uint32_t>(weights.size()));
  std::vector<std::vector<int>> seen(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    seen[i].resize(static_cast<std::size_t>(weights.spec(i).num_elements()));
  }

  for (int rank = 0; rank < tp; ++rank) {
    Tree tree;
    Module& layer = tree.Add("layer", trip.make(Rank(rank, tp)));
    EXPECT_EQ(tree.load_weights(*weights.Stream()).size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const PlacedPiece& piece : tree.Resolve(weights.spec(i)).pieces) {
        const Parameter& parameter = layer.parameters()[piece.parameter];
        const auto* local = reinterpret_cast<const float*>(parameter.storage.data());
        const auto* whole = reinterpret_cast<const float*>(weights.bytes(i).data());
        const bool matrix = piece.source.rank == 2;
        const std::int64_t cols = matrix ? piece.source.extent[1] : 1;
        for (std::int64_t e = 0; e < piece.source.num_elements(); ++e) {
          const auto index = [&](const Box& box, const Shape& shape) {
            const std::int64_t row = box.begin[0] + e / cols;
            return static_cast<std::size_t>(matrix ? row * shape[1] + box.begin[1] + e % cols : row);
          };
          const std::size_t at = index(piece.source, weights.spec(i).shape);
          ASSERT_EQ(local[index(piece.destination, parameter.spec.shape)], whole[at]);
          ++seen[i][at];
        }
      }
    }
    for (std::uint32_t p = 0; p < layer.parameters().size(); ++p) {
      const Parameter& parameter = layer.parameters()[p];
      const std::int64_t cols = parameter.spec.shape.size() == 2 ? parameter.spec.shape[1] : 1;
      for (const Box& box : layer.Padding(p)) {
        const auto* local = reinterpret_cast<const float*>(parameter.storage.data()) + box.begin[0] * cols;
        for (std::int64_t e = 0; !parameter.on_meta() && e < box.num_elements(); ++e) ASSERT_EQ(local[e], 0.0F);
      }
    }
  }
  for (const std::vector<int>& counts : seen) {
    for (const int count : counts) ASSERT_EQ(count, counts.front());  // all elements on equally many ranks
    EXPECT_GE(counts.front(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryLayerOnOneToEightRanks, LayerRoundTrip,
                         ::testing::Combine(::testing::Range(std::size_t{0}, RoundTrips().size()),
                                            ::testing::Values(1, 2, 4, 8)),
                         [](const auto& parameters) {
                           return RoundTrips().at(std::get<0>(parameters.param)).name + "_tp" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

// Of one group, which every rank holds whole: gate and x of 8, B and C of 3, 4 heads.
TEST(MambaInProjection, SplitsHeadsAndRepeatsTheOnlyGroup) {
  const MambaSizes sizes{.num_heads = 4, .head_dim = 2, .state_size = 3, .num_groups = 1};
  EXPECT_THAT(Moves(MambaInProjection(Rank(0, 2), sizes, 5, false), "weight", "", {26, 5}),
              ElementsAre(Move{{0, 4}, {0, 4}}, Move{{8, 12}, {4, 8}}, Move{{16, 19}, {8, 11}},
                          Move{{19, 22}, {11, 14}}, Move{{22, 24}, {14, 16}}));
  EXPECT_THAT(Moves(MambaInProjection(Rank(1, 2), sizes, 5, false), "weight", "", {26, 5}),
              ElementsAre(Move{{4, 8}, {0, 4}}, Move{{12, 16}, {4, 8}}, Move{{16, 19}, {8, 11}},
                          Move{{19, 22}, {11, 14}}, Move{{24, 26}, {14, 16}}));
}

TEST(MambaConv1d, SplitsGroups) {
  const MambaSizes sizes{.num_heads = 4, .head_dim = 2, .state_size = 3, .num_groups = 2};
  const MambaConv1d conv(Rank(1, 2), sizes, true);
  const std::vector<Move> moves = {{{4, 8}, {0, 4}}, {{11, 14}, {4, 7}}, {{17, 20}, {7, 10}}};
  EXPECT_EQ(Moves(conv, "weight", "", {20, 1, 4}), moves);
  EXPECT_EQ(Moves(conv, "bias", "", {20}), moves);
}

TEST(MambaMixer, SplitsWhatHeadsHaveOfTheirOwn) {
  const MambaSizes sizes{.num_heads = 4, .head_dim = 2, .state_size = 3, .num_groups = 2};
  const MambaMixer mixer(Rank(1, 2), sizes, 5, {});
  EXPECT_THAT(Moves(mixer, "A_log", "", {4}), ElementsAre(Move{{2, 4}, {0, 2}}));
  EXPECT_THAT(Moves(*mixer.FindChild("norm"), "weight", "", {8}), ElementsAre(Move{{4, 8}, {0, 4}}));
}

TEST(MambaMixer, NamesWhatDoesNotDivide) {
  const MambaSizes sizes{.num_heads = 12, .head_dim = 2, .state_size = 3, .num_groups = 3};
  EXPECT_THAT(ErrorOf([&] { MambaMixer(Rank(0, 2), sizes, 5, {}); }),
              HasSubstr("n_groups 3 is not divisible by tp_size 2"));
  EXPECT_THAT(ErrorOf([&] { MambaMixer(Rank(0, 5), sizes, 5, {}); }),
              HasSubstr("num_heads 12 is not divisible by tp_size 5"));
}

// Keys of 4 rows, values of 8, on two ranks.
constexpr DeltaNetSizes kDeltaNet{.num_key_heads = 2, .num_value_heads = 4, .key_head_dim = 2, .value_head_dim = 2};

GatedDeltaNet DeltaNet(int rank, int size, DeltaNetRows rows) {
  return GatedDeltaNet(Rank(rank, size), kDeltaNet, 5, {.rows = rows});
}

TEST(GatedDeltaNet, TakesWholeKeyHeadsOfProjectionsThatAreOrderedByThem) {
  const GatedDeltaNet net = DeltaNet(1, 2, DeltaNetRows::kByKeyHead);
  EXPECT_THAT(Moves(*net.FindChild("in_proj_qkvz"), "weight", "", {24, 5}), ElementsAre(Move{{12, 24}, {0, 12}}));
  EXPECT_THAT(Moves(*net.FindChild("in_proj_ba"), "weight", "", {8, 5}), ElementsAre(Move{{4, 8}, {0, 4}}));
  EXPECT_TRUE(net.FindChild("in_proj_qkvz")->shard_names().empty());
}

TEST(GatedDeltaNet, TakesItsHeadsOfEachPartOtherwise) {
  const GatedDeltaNet net = DeltaNet(1, 2, DeltaNetRows::kByPart);
  const Module& qkvz = *net.FindChild("in_proj_qkvz");
  const Move q{{2, 4}, {0, 2}}, k{{6, 8}, {2, 4}}, v{{12, 16}, {4, 8}};
  EXPECT_THAT(Moves(qkvz, "weight", "0", {16, 5}), ElementsAre(q, k, v));
  EXPECT_THAT(Moves(qkvz, "weight", "1", {8, 5}), ElementsAre(Move{{4, 8}, {8, 12}}));
  EXPECT_THAT(Moves(qkvz, "weight", "", {24, 5}), ElementsAre(q, k, v, Move{{20, 24}, {8, 12}}));
  EXPECT_THAT(Moves(*net.FindChild("in_proj_ba"), "weight", "1", {4, 5}), ElementsAre(Move{{2, 4}, {2, 4}}));
}

TEST(GatedDeltaNet, NamesEachTensorOnceWhereSeveralPartsComeInIt) {
  const GatedDeltaNet net = DeltaNet(0, 2, DeltaNetRows::kByPart);
  const std::vector<ExpectedTensor> tensors = net.FindChild("in_proj_qkvz")->Expected(0, "linear_attn.in_proj_qkvz");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "linear_attn.in_proj_qkv.weight");
  EXPECT_EQ(tensors[0].destination, Box::Slice({12, 5}, 0, 0, 8));
  EXPECT_EQ(tensors[1].name, "linear_attn.in_proj_z.weight");
  EXPECT_EQ(tensors[1].destination, Box::Slice({12, 5}, 0, 8, 4));
  EXPECT_EQ(net.FindChild("in_proj_qkvz")->shard_names().size(), 2U);
}

TEST(GatedDeltaNet, SplitsTheConvolutionInItsThreePartsAndVectorsByHeads) {
  const GatedDeltaNet net = DeltaNet(1, 2, DeltaNetRows::kByPart);
  EXPECT_THAT(Moves(*net.FindChild("conv1d"), "weight", "", {16, 1, 4}),
              ElementsAre(Move{{2, 4}, {0, 2}}, Move{{6, 8}, {2, 4}}, Move{{12, 16}, {4, 8}}));
  EXPECT_THAT(Moves(net, "A_log", "", {4}), ElementsAre(Move{{2, 4}, {0, 2}}));
  EXPECT_THAT(Moves(net, "dt_bias", "", {4}), ElementsAre(Move{{2, 4}, {0, 2}}));
  EXPECT_THAT(Moves(*net.FindChild("norm"), "weight", "", {2}), ElementsAre(Move{{0, 2}, {0, 2}}));
}

TEST(GatedDeltaNet, NamesWhatDoesNotDivide) {
  EXPECT_EQ(ErrorOf([] { DeltaNet(0, 4, DeltaNetRows::kByPart); }),
            "linear_num_key_heads 2 is not divisible by tp_size 4");
  const DeltaNetSizes uneven{.num_key_heads = 4, .num_value_heads = 6, .key_head_dim = 2, .value_head_dim = 2};
  EXPECT_EQ(ErrorOf([&] { GatedDeltaNet(Rank(0, 1), uneven, 5, {}); }),
            "linear_num_value_heads 6 is not divisible by linear_num_key_heads 4");
}

}  // namespace
}  // namespace layercast
