// Plans of a trainer's rules: what they drop is missing where the model needs it, and rules that say nothing are named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "layercast/model/weight_rules.h"
#include "tests/engine_side/plan/planned_model.h"
#include "tests/support/error_of.h"
#include "tests/support/test_experts.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TinyModel;
using testing::TinyOptions;
using testing::TinySpecs;
using testing::Tree;

// Problems of a TinyModel whose checkpoint is complete, but for the rules.
class PlanOfWeightRules : public ::testing::Test {
 protected:
  CheckedPlan Check(const std::string& rules, const TinyOptions& options = {}, bool partial = false) {
    model_ = TinyModel(options);
    WeightRules::Parse(rules).ApplyTo(*model_);
    return LoadPlan::Check(*model_, Manifest::OfSpecs("test", 0, specs_), partial);
  }

  std::vector<std::string> Lines(const std::string& rules, const TinyOptions& options = {}, bool partial = false) {
    return Check(rules, options, partial).problems.Lines();
  }

  std::vector<TensorSpec> specs_ = TinySpecs({});

 private:
  std::unique_ptr<Tree> model_;
};

TEST_F(PlanOfWeightRules, MissesWhatTheyDrop) {
  const std::string rules = R"({"names": [{"suffix": "k_proj.weight", "drop": "x"}]})";
  const auto misses = ElementsAre("missing: model.layers.0.self_attn.k_proj.weight");
  EXPECT_THAT(Lines(rules), misses);
  EXPECT_THAT(Lines(rules, {.tp_rank = 1, .tp_size = 2}), misses);
  EXPECT_THAT(Lines(rules, {}, true), misses);  // of a layer that other tensors come for
  EXPECT_THAT(Lines(R"({"names": [{"suffix": "mlp.down_proj.weight", "drop": "x"}]})"),
              ElementsAre("missing: model.layers.0.mlp.down_proj.weight"));
}

TEST_F(PlanOfWeightRules, MissesEverythingOfAModelThatTheyDrop) {
  const std::vector<std::string> lines = Lines(R"({"names": [{"prefix": "model", "drop": "x"}]})");
  EXPECT_EQ(lines.size(), specs_.size() - 1);
  EXPECT_THAT(lines, AllOf(Contains("missing: model.norm.weight"), Not(Contains("missing: lm_head.weight"))));
}

TEST_F(PlanOfWeightRules, MissesWhatTheyCallOtherwise) {
  EXPECT_THAT(Lines(R"({"names": [{"suffix": "up_proj.weight", "to": "gate_up_proj.bias"}]})"),
              ElementsAre("missing: model.layers.0.mlp.up_proj.weight",
                          HasSubstr("(mapped to 'model.layers.0.mlp.gate_up_proj.bias')")));
}

TEST_F(PlanOfWeightRules, TakesATiedHeadForAnOwnerThatTheyDrop) {
  const TinyOptions tied{.tied = true};
  const std::string drop = R"({"names": [{"prefix": "model.embed_tokens", "drop": "x"}]})";
  const CheckedPlan checked = Check(drop, tied);  // lm_head is there
  EXPECT_TRUE(checked.problems.empty()) << checked.problems.Summary();
  EXPECT_THAT(checked.plan.aliases(), IsEmpty());
  const auto head = static_cast<std::uint32_t>(specs_.size() - 1);
  ASSERT_EQ(specs_[head].name, "lm_head.weight");
  EXPECT_EQ(checked.plan.PlacementsOf(head).size(), 1U);
  specs_ = TinySpecs(tied);
  EXPECT_THAT(Lines(drop, tied), ElementsAre("missing: model.embed_tokens.weight"));
}

// One thing that is wrong is one line: what the tree calls it is there.
TEST_F(PlanOfWeightRules, DoNotMissWhatDoesNotFitUnderAnotherName) {
  for (TensorSpec& spec : specs_) {
    if (spec.name.ends_with("up_proj.weight") || spec.name == "model.norm.weight") spec.shape.front() += 1;
    spec.name = "policy." + spec.name;
  }
  EXPECT_THAT(Lines(R"({"names": [{"prefix": "policy", "to": ""}]})"),
              ElementsAre(HasSubstr("does not fit: layer model.layers.0.mlp.gate_up_proj: "
                                    "'policy.model.layers.0.mlp.up_proj.weight' (mapped to "
                                    "'model.layers.0.mlp.up_proj.weight') expected [24, 16] f32, got [25, 16] f32"),
                          HasSubstr("does not fit: layer model.norm")));
}

TEST_F(PlanOfWeightRules, SayWhatDoesNotFitBeforeWhatIsMissingForIt) {
  const CheckedPlan checked = Check(R"({"transforms": [{"suffix": "q_proj.weight", "split": {"axis": 0,
    "into": [{"to": "q_proj.weight", "size": 30}, {"to": "k_proj.weight", "size": 8}]}}],
    "names": [{"suffix": "v_proj.weight", "drop": "x"}]})");
  EXPECT_THAT(checked.problems.Lines(), ElementsAre(HasSubstr("does not fit: 'model.layers.0.self_attn.q_proj.weight'"),
                                                    "missing: model.layers.0.self_attn.v_proj.weight"));
  EXPECT_THAT(checked.problems.Summary(), ::testing::StartsWith("\n  1 that do not fit: "));
}

TEST_F(PlanOfWeightRules, NamesRulesThatTouchNoTensor) {
  const std::string rules = R"({
    "transforms": [{"suffix": "o_proj.weight", "reshape": {"shape": [16, 32]}}, {"suffix": "w", "transpose": {}}],
    "names": [{"prefix": "policy", "to": ""}, {"segments": "layers", "to": "layers"},
              {"suffix": "value_head", "drop": "not served"}, {"suffix": "extra", "drop": "not served"}]})";
  specs_.push_back({"model.extra", DType::kF32, {1}});
  const auto unused = ElementsAre("suffix w: transpose", "prefix policy -> ", "segments layers -> layers",
                                  "drop suffix value_head: not served");
  EXPECT_THAT(Check(rules).plan.unused_rules(), unused);
  EXPECT_TRUE(Check(rules).problems.empty());
  EXPECT_THAT(Check(rules, {}, true).plan.unused_rules(), IsEmpty());  // of a part they say nothing
}

TEST(PlanOfTheTreesRules, LeavesOutThoseThatNoFileDeclares) {
  const auto model = TinyModel({});
  model->SetMapper(WeightsMapper({NameRule::Prefix("backbone", "model")}));
  EXPECT_THAT(LoadPlan::Build(*model, Manifest::OfSpecs("test", 0, TinySpecs({}))).unused_rules(), IsEmpty());
}

TEST(PlanOfExpertsByRules, MissesAnExpertThatIsDropped) {
  Tree root;
  root.Add("experts",
           std::make_unique<FusedMoE>(LayerContext{{}, DType::kF32, true},
                                      ExpertOptions{.num_experts = 4, .hidden_size = 6, .intermediate_size = 8}));
  testing::Weights weights;
  AddExperts(weights, "experts", {.experts = 4, .hidden = 6, .intermediate = 8}, testing::ExpertForm::kPerExpert,
             DType::kF32);
  WeightRules::Parse(R"({"names": [{"prefix": "experts.2", "drop": "x"}]})").ApplyTo(root);
  EXPECT_THAT(LoadPlan::Check(root, weights.ToManifest()).problems.missing,
              ElementsAre("experts.2.gate_proj.weight", "experts.2.up_proj.weight", "experts.2.down_proj.weight"));
}

TEST(PlanOfExpertsByRules, MissesAStackThatIsDropped) {
  Tree root;
  root.Add("experts",
           std::make_unique<FusedMoE>(LayerContext{{}, DType::kF32, true},
                                      ExpertOptions{.num_experts = 2, .hidden_size = 6, .intermediate_size = 8}));
  testing::Weights weights;
  AddExperts(weights, "experts", {.experts = 2, .hidden = 6, .intermediate = 8}, testing::ExpertForm::kStacked,
             DType::kF32);
  WeightRules::Parse(R"({"names": [{"suffix": "down_proj", "drop": "x"}]})").ApplyTo(root);
  EXPECT_THAT(LoadPlan::Check(root, weights.ToManifest()).problems.missing,
              ElementsAre("experts.0.down_proj.weight", "experts.1.down_proj.weight"));
}

}  // namespace
}  // namespace layercast
