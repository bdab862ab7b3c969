// The sharding arithmetic of recurrent layers' parts: fixed vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/mamba_mixer.h"
#include "tests/engine_side/model/layers/moves.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Move;
using testing::Moves;
using testing::Rank;

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

TEST(MambaMixer, KeepsWhatItsDecayIsMadeOfInFp32) {
  const MambaSizes sizes{.num_heads = 4, .head_dim = 2, .state_size = 3, .num_groups = 2};
  const MambaMixer mixer({{}, DType::kBF16, true}, sizes, 5, {});
  std::vector<std::string> specs;
  for (const Parameter& parameter : mixer.parameters()) specs.push_back(parameter.spec.name + Describe(parameter.spec));
  EXPECT_THAT(specs, ElementsAre("A_log[4] f32", "D[4] bf16", "dt_bias[4] bf16"));
  EXPECT_EQ(mixer.derived()[0].sources[0].dtype, DType::kF32);
}

TEST(MambaMixer, NamesWhatDoesNotDivide) {
  const MambaSizes sizes{.num_heads = 12, .head_dim = 2, .state_size = 3, .num_groups = 3};
  EXPECT_THAT(ErrorOf([&] { MambaMixer(Rank(0, 2), sizes, 5, {}); }),
              HasSubstr("n_groups 3 is not divisible by tp_size 2"));
  EXPECT_THAT(ErrorOf([&] { MambaMixer(Rank(0, 5), sizes, 5, {}); }),
              HasSubstr("num_heads 12 is not divisible by tp_size 5"));
}

// Keys of 4 rows, values of 8, on two ranks.
constexpr DeltaNetSizes kDeltaNetSizes{
    .num_key_heads = 2, .num_value_heads = 4, .key_head_dim = 2, .value_head_dim = 2};

GatedDeltaNet DeltaNet(int rank, int size, DeltaNetRows rows) {
  return GatedDeltaNet(Rank(rank, size), kDeltaNetSizes, 5, {.rows = rows});
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
