// Experts: which rank holds which, every name that checkpoints have for them, and the bytes that come of it.
#include "layercast/model/moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/test_experts.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::ExpertElement;
using testing::ExpertForm;
using testing::ExpertMatrix;
using ::testing::HasSubstr;
using testing::Tree;
using testing::Weights;

constexpr testing::ExpertSizes kSizes{.experts = 5, .hidden = 6, .intermediate = 8, .bias = true};

ExpertOptions OptionsOf(const testing::ExpertSizes& sizes) {
  return {.num_experts = sizes.experts,
          .hidden_size = sizes.hidden,
          .intermediate_size = sizes.intermediate,
          .bias = sizes.bias};
}

ParallelConfig Spread(int rank, int size, ExpertPlacement placement = ExpertPlacement::kContiguous) {
  return {.tp_rank = rank, .tp_size = size, .ep_rank = rank, .ep_size = size, .expert_placement = placement};
}

// -1: another rank's.
std::vector<std::int64_t> MapOf(const ParallelConfig& parallel, std::int64_t num_experts) {
  std::vector<std::int64_t> map;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    map.push_back(LocalExperts::Of(parallel, num_experts).LocalOf(e).value_or(-1));
  }
  return map;
}

TEST(ExpertPlacement, HasNames) {
  for (const std::string& name : KnownExpertPlacements())
    EXPECT_EQ(ExpertPlacementName(ExpertPlacementNamed(name)), name);
  EXPECT_EQ(ErrorOf([] { ExpertPlacementNamed("linear"); }, ErrorCode::kInvalidArgument),
            "expert placement: expected contiguous or round_robin, got 'linear'");
}

TEST(LocalExperts, AreNeighboursOrEveryNth) {
  EXPECT_THAT(MapOf(Spread(0, 2), 9), ElementsAre(0, 1, 2, 3, 4, -1, -1, -1, -1));
  EXPECT_THAT(MapOf(Spread(1, 2), 9), ElementsAre(-1, -1, -1, -1, -1, 0, 1, 2, 3));
  EXPECT_THAT(MapOf(Spread(0, 2, ExpertPlacement::kRoundRobin), 9), ElementsAre(0, -1, 1, -1, 2, -1, 3, -1, 4));
  EXPECT_THAT(MapOf(Spread(1, 2, ExpertPlacement::kRoundRobin), 9), ElementsAre(-1, 0, -1, 1, -1, 2, -1, 3, -1));
  EXPECT_THAT(MapOf(Spread(2, 4, ExpertPlacement::kRoundRobin), 8), ElementsAre(-1, -1, 0, -1, -1, -1, 1, -1));
  EXPECT_THAT(MapOf({.tp_rank = 1, .tp_size = 2}, 3), ElementsAre(0, 1, 2));
}

TEST(LocalExperts, AreOneMoreOnTheFirstRanksWhereTheyDoNotDivide) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < 4; ++rank) counts.push_back(LocalExperts::Of(Spread(rank, 4), 10).count);
  EXPECT_THAT(counts, ElementsAre(3, 3, 2, 2));
  EXPECT_EQ(LocalExperts::Of(Spread(3, 4), 2).count, 0);
}

TEST(LocalExperts, RefuseARankThatCannotBe) {
  EXPECT_EQ(ErrorOf([] { LocalExperts::Of({.ep_rank = 2, .ep_size = 2}, 4); }, ErrorCode::kInvalidArgument),
            "expected ep_rank from 0 to ep_size - 1, got ep_rank 2 of ep_size 2");
  EXPECT_EQ(ErrorOf([] { LocalExperts::Of({}, 0); }, ErrorCode::kInvalidArgument),
            "num_experts: expected at least 1, got 0");
}

TEST(ExpertRouter, KeepsItsWeightInFp32WhereAFamilyDoes) {
  Tree tree;
  const Module& router = tree.Add("gate", std::make_unique<ExpertRouter>(LayerContext{{}, DType::kBF16, true}, 4, 3,
                                                                         RouterOptions{.fp32_weight = true}));
  Weights weights;
  weights.AddCounting({"gate.weight", DType::kF32, {3, 4}}, 0.1F);
  tree.load_weights(*weights.Stream());
  EXPECT_EQ(reinterpret_cast<const float*>(router.parameters()[0].storage.data())[1], 1.1F);
}

TEST(ExpertRouter, KeepsItsCorrectionBiasInFp32) {
  Tree tree;
  const Module& router =
      tree.Add("gate", std::make_unique<ExpertRouter>(LayerContext{{}, DType::kBF16, true}, 4, 3,
                                                      RouterOptions{.bias = true, .correction_bias = true}));
  EXPECT_EQ(router.parameters()[0].spec.shape, (Shape{3, 4}));
  EXPECT_FALSE(router.parameters()[0].quantize);
  Weights weights;
  weights.AddCounting({"gate.weight", DType::kBF16, {3, 4}}, 0);
  weights.AddCounting({"gate.bias", DType::kBF16, {3}}, 0);
  weights.AddCounting({"gate.e_score_correction_bias", DType::kF32, {3}}, 0.1F);
  tree.load_weights(*weights.Stream());
  EXPECT_EQ(reinterpret_cast<const float*>(router.parameters()[2].storage.data())[1], 1.1F);
}

// Tensor parallel ranks, expert parallel ranks, how experts are placed.
struct Ranks {
  int tp_size = 1;
  int ep_size = 1;
  ExpertPlacement placement = ExpertPlacement::kContiguous;

  ParallelConfig Of(int rank) const { return {rank, tp_size, ep_size > 1 ? rank : 0, ep_size, placement}; }
  std::vector<std::int64_t> ExpertsOf(int rank) const {
    std::vector<std::int64_t> experts;
    for (std::int64_t e = 0, from = 0; e < kSizes.experts; ++e) {
      const bool spread = placement == ExpertPlacement::kRoundRobin;
      const std::int64_t each = kSizes.experts / ep_size + (rank < kSizes.experts % ep_size ? 1 : 0);
      if (e == 0) from = rank * (kSizes.experts / ep_size) + std::min<std::int64_t>(rank, kSizes.experts % ep_size);
      if (ep_size == 1 || (spread ? e % ep_size == rank : e >= from && e < from + each)) experts.push_back(e);
    }
    return experts;
  }
};

class FusedMoEOfEveryForm : public ::testing::TestWithParam<std::tuple<ExpertForm, Ranks>> {};

// Element by element: what a rank must hold of a parameter.
std::vector<float> ExpectedOf(const Ranks& ranks, int rank, const std::string& parameter) {
  const int tp = ranks.ep_size > 1 ? 1 : ranks.tp_size;
  const int tp_rank = ranks.ep_size > 1 ? 0 : rank;
  const std::int64_t slice = kSizes.intermediate / tp;
  const bool bias = parameter.ends_with("bias");
  const bool down = parameter.starts_with("w2");
  std::vector<float> values;
  for (const std::int64_t expert : ranks.ExpertsOf(rank)) {
    for (std::int64_t row = 0; row < (down ? kSizes.hidden : 2 * slice); ++row) {
      for (std::int64_t col = 0; col < (bias ? 1 : down ? slice : kSizes.hidden); ++col) {
        const auto matrix = down ? ExpertMatrix::kDown : row < slice ? ExpertMatrix::kGate : ExpertMatrix::kUp;
        const std::int64_t whole_row = down ? row : row % slice + tp_rank * slice;
        const std::int64_t whole_col = bias ? -1 : down ? col + tp_rank * slice : col;
        const bool zero = down && bias && tp_rank > 0;
        values.push_back(zero ? 0.0F : ExpertElement(1, matrix, expert, whole_row, whole_col));
      }
    }
  }
  return values;
}

TEST_P(FusedMoEOfEveryForm, HoldsThisRanksExpertsOrItsPartOfEach) {
  const auto& [form, ranks] = GetParam();
  Weights weights;
  AddExperts(weights, "experts", kSizes, form, DType::kF32);
  for (int rank = 0; rank < ranks.tp_size; ++rank) {
    Tree tree;
    const LayerContext context{ranks.Of(rank), DType::kF32, true};
    ExpertOptions options = OptionsOf(kSizes);
    options.transposed = IsTransposed(form);
    options.interleaved = form == ExpertForm::kInterleaved;
    Module& layer = tree.Add("experts", std::make_unique<FusedMoE>(context, options));
    EXPECT_EQ(tree.load_weights(*weights.Stream()).size(), weights.size());
    for (const Parameter& parameter : layer.parameters()) {
      const std::vector<float> expected = ExpectedOf(ranks, rank, parameter.spec.name);
      ASSERT_EQ(static_cast<std::size_t>(parameter.spec.num_elements()), expected.size()) << parameter.spec.name;
      if (expected.empty()) continue;
      const auto* got = reinterpret_cast<const float*>(parameter.storage.data());
      ASSERT_NE(got, nullptr) << parameter.spec.name;
      EXPECT_EQ(std::vector(got, got + expected.size()), expected) << parameter.spec.name << " of rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedMoEOfEveryForm,
                         ::testing::Combine(::testing::Values(ExpertForm::kPerExpert, ExpertForm::kMixtral,
                                                              ExpertForm::kFused, ExpertForm::kFusedW13,
                                                              ExpertForm::kStacked, ExpertForm::kStackedOwnNames,
                                                              ExpertForm::kTransposed, ExpertForm::kInterleaved),
                                            ::testing::Values(Ranks{1, 1}, Ranks{2, 1}, Ranks{4, 1}, Ranks{2, 2},
                                                              Ranks{2, 2, ExpertPlacement::kRoundRobin}, Ranks{8, 8},
                                                              Ranks{8, 8, ExpertPlacement::kRoundRobin})));

std::vector<PlacedPiece> Placed(const FusedMoE& layer, const std::string& name, Shape shape) {
  return layer.Place(name, "", {name, DType::kF32, std::move(shape)});
}

TEST(FusedMoE, SplitsAnExpertOverRanks) {
  const FusedMoE layer({{.tp_rank = 1, .tp_size = 2}, DType::kF32, true}, OptionsOf(kSizes));
  EXPECT_EQ(layer.parameters()[0].spec.shape, (Shape{5, 8, 6}));
  EXPECT_EQ(layer.parameters()[1].spec.shape, (Shape{5, 6, 4}));
  EXPECT_EQ(layer.parameters()[0].shard_axis, ShardAxis::kRows);
  EXPECT_EQ(layer.parameters()[1].shard_axis, ShardAxis::kCols);
  const PlacedPiece up = Placed(layer, "3.w3.weight", {8, 6}).at(0);
  EXPECT_EQ(up.source, Box::Slice({8, 6}, 0, 4, 4));
  EXPECT_EQ(up.destination, (Box{3, {3, 4, 0}, {1, 4, 6}}));
  EXPECT_EQ(up.shard_id, "w3");
}

TEST(FusedMoE, TakesNothingOfAnExpertThatIsAnotherRanks) {
  const FusedMoE layer({Spread(0, 2), DType::kF32, true}, OptionsOf(kSizes));
  EXPECT_EQ(layer.parameters()[0].spec.shape, (Shape{3, 16, 6}));
  EXPECT_EQ(layer.parameters()[0].shard_axis, ShardAxis::kNone);
  ASSERT_EQ(Placed(layer, "4.gate_proj.weight", {8, 6}).size(), 1U);
  EXPECT_EQ(Placed(layer, "4.gate_proj.weight", {8, 6})[0].source.num_elements(), 0);
  const std::vector<PlacedPiece> stacked = Placed(layer, "gate_up_proj", {5, 16, 6});
  ASSERT_EQ(stacked.size(), 2U);
  EXPECT_EQ(stacked[1].source, (Box{3, {0, 8, 0}, {3, 8, 6}}));
}

TEST(FusedMoE, TakesColumnsOfGateAndUpTogetherWhereTheyAlternate) {
  ExpertOptions options = OptionsOf(kSizes);
  options.transposed = options.interleaved = true;
  const FusedMoE layer({{.tp_rank = 1, .tp_size = 2}, DType::kF32, true}, options);
  const std::vector<PlacedPiece> weight = Placed(layer, "gate_up_proj", {5, 6, 16});
  ASSERT_EQ(weight.size(), 1U);
  EXPECT_EQ(weight[0].source, (Box{3, {0, 0, 8}, {5, 6, 8}}));
  EXPECT_EQ(weight[0].destination, (Box{3, {0, 0, 0}, {5, 8, 6}}));
  EXPECT_TRUE(weight[0].order.transposed && weight[0].order.interleaved);
  const PlacedPiece bias = Placed(layer, "gate_up_proj_bias", {5, 16}).at(0);
  EXPECT_EQ(bias.source, (Box{2, {0, 8}, {5, 8}}));
  EXPECT_TRUE(!bias.order.transposed && bias.order.interleaved);
  EXPECT_FALSE(Placed(layer, "down_proj", {5, 8, 6}).at(0).order.interleaved);
  // Unpacked blocks come one by one, and are not transposed.
  const PlacedPiece blocks = Placed(layer, "3.gate_up_proj_blocks", {16, 6}).at(0);
  EXPECT_EQ(blocks.source, (Box{2, {8, 0}, {8, 6}}));
  EXPECT_EQ(blocks.destination, (Box{3, {3, 0, 0}, {1, 8, 6}}));
  EXPECT_TRUE(!blocks.order.transposed && blocks.order.interleaved);
  EXPECT_TRUE(Placed(layer, "3.down_proj_blocks", {6, 8}).at(0).order.is_same());
  // Under its own names nothing is the other way round.
  EXPECT_TRUE(Placed(layer, "w13_weight", {5, 16, 6}).at(0).order.is_same());
}

TEST(FusedMoE, HoldsUpAloneWhereThereIsNoGate) {
  ExpertOptions options = OptionsOf(kSizes);
  options.gated = false;
  const FusedMoE layer({{.tp_rank = 1, .tp_size = 2}, DType::kF32, true}, options);
  EXPECT_EQ(layer.parameters()[0].spec.shape, (Shape{5, 4, 6}));
  const PlacedPiece up = Placed(layer, "3.up_proj.weight", {8, 6}).at(0);
  EXPECT_EQ(up.source, Box::Slice({8, 6}, 0, 4, 4));
  EXPECT_EQ(up.destination, (Box{3, {3, 0, 0}, {1, 4, 6}}));
  EXPECT_EQ(Placed(layer, "up_proj", {5, 8, 6}).at(0).source, (Box{3, {0, 4, 0}, {5, 4, 6}}));
  EXPECT_EQ(Placed(layer, "w13_weight", {5, 8, 6}).at(0).source, (Box{3, {0, 4, 0}, {5, 4, 6}}));
  EXPECT_EQ(layer.Expected(0, "experts").at(4).name, "experts.4.up_proj.weight");
  for (const char* name : {"3.gate_proj.weight", "3.w3.weight", "gate_up_proj"}) {
    EXPECT_EQ(ErrorOf([&] { (void)Placed(layer, name, {8, 6}); }, ErrorCode::kNotFound),
              "FusedMoE has no parameter '" + std::string(name) + "'");
  }
}

TEST(FusedMoE, RefusesWhatIsNoPartOfAnExpert) {
  testing::ExpertSizes plain = kSizes;
  plain.bias = false;
  Tree tree;
  tree.Add("experts", std::make_unique<FusedMoE>(LayerContext{{}, DType::kF32, true}, OptionsOf(plain)));
  for (const char* name :
       {"experts.5.w1.weight", "experts.05.w1.weight", "experts.-1.w1.weight", "experts.x.w1.weight",
        "experts.1.w4.weight", "experts.1.w1", "experts.1.w1.scales", "experts.1.w1.weight.extra", "experts.1.w1.bias",
        "experts.gate_up_proj_bias", "experts.gate_up_proj.scales", "experts.99999999999999999999.w1.weight"}) {
    EXPECT_THAT(ErrorOf([&] { (void)tree.Resolve({name, DType::kF32, {8, 6}}); }, ErrorCode::kNotFound),
                HasSubstr("There is no module or parameter named '" + std::string(name) + "'"));
  }
}

TEST(FusedMoE, SaysWhatItExpectedAndWhatItGot) {
  const FusedMoE layer({{.tp_rank = 0, .tp_size = 2}, DType::kF32, true}, OptionsOf(kSizes));
  EXPECT_EQ(ErrorOf([&] { Placed(layer, "1.up_proj.weight", {4, 6}); }, ErrorCode::kInvalidArgument),
            "expected [8, 6] f32, got [4, 6] f32");
  EXPECT_EQ(ErrorOf([&] { Placed(layer, "gate_up_proj", {5, 6, 16}); },
                    ErrorCode::kInvalidArgument),  // transposed: never guessed
            "expected [5, 16, 6] f32, got [5, 6, 16] f32");
  EXPECT_EQ(ErrorOf([] { FusedMoE({{.tp_rank = 0, .tp_size = 3}, DType::kF32, true}, OptionsOf(kSizes)); },
                    ErrorCode::kInvalidArgument),
            "intermediate_size 8 is not divisible by tp_size 3");
}

}  // namespace
}  // namespace layercast
