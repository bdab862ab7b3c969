// Plans of mixtures of experts: what a rank asks for, and how what is wrong is called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/model/moe.h"
#include "tests/support/test_experts.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ExpertForm;
using ::testing::IsEmpty;
using testing::Tree;
using testing::Weights;

constexpr testing::ExpertSizes kSizes{.experts = 4, .hidden = 6, .intermediate = 8};

// `options`: all but the sizes.
std::unique_ptr<Tree> ModelOf(const ParallelConfig& parallel, ExpertOptions options = {}) {
  options.num_experts = kSizes.experts;
  options.hidden_size = kSizes.hidden;
  options.intermediate_size = kSizes.intermediate;
  auto mlp = std::make_unique<Tree>("Mlp");
  mlp->Add("experts", std::make_unique<FusedMoE>(LayerContext{parallel, DType::kF32, true}, options));
  auto root = std::make_unique<Tree>("Model");
  root->Add("mlp", std::move(mlp));
  return root;
}

Weights WeightsOf(ExpertForm form) {
  Weights weights;
  AddExperts(weights, "mlp.experts", kSizes, form, DType::kF32);
  return weights;
}

// Counts how often it is visited by a name that is on its way, or asked where a tensor goes.
class CountedTree final : public Tree {
 public:
  explicit CountedTree(std::size_t& steps) : steps_(steps) {}
  std::string_view held_by() const override {
    ++steps_;
    return {};
  }

 private:
  std::size_t& steps_;
};

class CountedExperts final : public Module {
 public:
  CountedExperts(const ExpertOptions& options, std::size_t& steps)
      : Module("CountedExperts"), experts_(LayerContext{{}, DType::kF32, true}, options), steps_(steps) {
    for (const Parameter& parameter : experts_.parameters()) AddParameter({.spec = parameter.spec, .storage = {}});
  }
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override {
    ++steps_;
    return experts_.Place(name, shard_id, spec);
  }
  std::string_view held_by() const override {
    ++steps_;
    return {};
  }

 private:
  const FusedMoE experts_;
  std::size_t& steps_;
};

// Visits and questions for each tensor of a plan.
double StepsPerTensor(std::int64_t layers, std::int64_t experts) {
  std::size_t steps = 0;
  auto tree = std::make_unique<CountedTree>(steps);
  Weights weights;
  for (std::int64_t i = 0; i < layers; ++i) {
    const ExpertOptions options{.num_experts = experts, .hidden_size = 2, .intermediate_size = 2};
    auto layer = std::make_unique<CountedTree>(steps);
    layer->Add("experts", std::make_unique<CountedExperts>(options, steps));
    tree->Add(std::to_string(i), std::move(layer));
    AddExperts(weights, std::to_string(i) + ".experts", {.experts = experts, .hidden = 2, .intermediate = 2},
               ExpertForm::kPerExpert, DType::kF32);
  }
  const LoadPlan plan = LoadPlan::Build(*tree, weights.ToManifest());
  EXPECT_EQ(plan.placements().size(), weights.size());
  return static_cast<double>(steps) / static_cast<double>(weights.size());
}

Manifest Without(const Weights& weights, const std::vector<std::string>& names) {
  std::vector<TensorSpec> specs = weights.ToManifest().specs();
  std::erase_if(specs, [&](const TensorSpec& spec) { return std::ranges::count(names, spec.name) != 0; });
  return Manifest::OfSpecs("test", 0, specs);
}

TEST(PlanOfExperts, NamesMissingTensorsAsCheckpointsCallThem) {
  const Manifest some =
      Without(WeightsOf(ExpertForm::kPerExpert), {"mlp.experts.1.up_proj.weight", "mlp.experts.3.down_proj.weight"});
  EXPECT_THAT(LoadPlan::Check(*ModelOf({}), some).problems.missing,
              ElementsAre("mlp.experts.1.up_proj.weight", "mlp.experts.3.down_proj.weight"));
  const Manifest mixtral = Without(WeightsOf(ExpertForm::kMixtral), {"mlp.experts.2.w3.weight"});
  EXPECT_THAT(
      LoadPlan::Check(*ModelOf({.tp_rank = 1, .tp_size = 2}, {.mixtral_names = true}), mixtral).problems.missing,
      ElementsAre("mlp.experts.2.w3.weight"));
  const Manifest stacked = Without(WeightsOf(ExpertForm::kInterleaved), {"mlp.experts.gate_up_proj"});
  EXPECT_THAT(LoadPlan::Check(*ModelOf({}, {.transposed = true, .interleaved = true}), stacked).problems.missing,
              ElementsAre("mlp.experts.gate_up_proj"));
}

TEST(PlanOfExperts, MissesOnlyThisRanksExperts) {
  const ParallelConfig first{.tp_rank = 0, .tp_size = 2, .ep_rank = 0, .ep_size = 2};
  const ParallelConfig second{.tp_rank = 1, .tp_size = 2, .ep_rank = 1, .ep_size = 2};
  const Manifest some = Without(WeightsOf(ExpertForm::kPerExpert), {"mlp.experts.3.gate_proj.weight"});
  EXPECT_THAT(LoadPlan::Check(*ModelOf(first), some).problems.missing, IsEmpty());
  EXPECT_THAT(LoadPlan::Check(*ModelOf(second), some).problems.missing, ElementsAre("mlp.experts.3.gate_proj.weight"));
}

TEST(PlanOfExperts, RefusesAnExpertThatComesInTwoForms) {
  Weights weights = WeightsOf(ExpertForm::kStacked);
  weights.AddRandom({"mlp.experts.2.up_proj.weight", DType::kF32, {8, 6}}, 1);
  const PlanProblems problems = LoadPlan::Check(*ModelOf({}), weights.ToManifest()).problems;
  EXPECT_THAT(
      problems.repeated,
      ElementsAre("'mlp.experts.gate_up_proj' and 'mlp.experts.2.up_proj.weight' both fill the same elements of "
                  "'mlp.experts.w13_weight'"));
  EXPECT_THAT(problems.missing, IsEmpty());
}

// bench/plan_bench.cc measures how long that takes.
TEST(PlanOfExperts, VisitsTheModulesOnATensorsWayAndNoOthers) {
  const double steps = StepsPerTensor(2, 2);
  EXPECT_EQ(StepsPerTensor(64, 2), steps);
  EXPECT_EQ(StepsPerTensor(2, 64), steps);
}

TEST(PlanOfExperts, AreOneLayerWhateverTheirNumber) {
  const LoadPlan plan = LoadPlan::Build(*ModelOf({}), WeightsOf(ExpertForm::kPerExpert).ToManifest());
  EXPECT_EQ(plan.layers().size(), 1U);
  EXPECT_EQ(plan.parameters().size(), 2U);
  EXPECT_EQ(plan.placements().size(), 12U);
  EXPECT_EQ(plan.placements()[1].shard_id, "w3");  // expert by expert
  EXPECT_EQ(plan.placements()[2].destination.begin[0], 1);
}

}  // namespace
}  // namespace layercast
