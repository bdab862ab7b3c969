// Which layers have scales of activations and of caches, for engines that have them, and where tensors of them go.
#include "layercast/model/held_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "layercast/model/attention.h"
#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/moe.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tree;

TensorSpec Number(std::string name, Shape shape = {}) { return {std::move(name), DType::kF32, std::move(shape)}; }

std::vector<std::string> NamesOf(const Module& layer) {
  std::vector<std::string> names;
  for (const Parameter& parameter : layer.parameters()) names.push_back(parameter.spec.name);
  return names;
}

std::unique_ptr<Tree> CacheBelow() {
  auto root = std::make_unique<Tree>();
  root->Add("attn", std::make_unique<KvCacheScales>());
  return root;
}

TEST(HeldScales, AreNobodysUnlessTheEngineHasThem) {
  const auto root = CacheBelow();
  EXPECT_TRUE(root->children()[0].second->parameters().empty());
  for (const char* name : {"attn.k_scale", "attn.v_scale", "attn.kv_scale"}) {
    EXPECT_EQ(root->Resolve(Number(name)).skip_rule, "scales of a key/value cache, which this engine does not have");
  }
  HoldScales(*root, {.kv_cache = true});
  HoldScales(*root, {.kv_cache = true});
  EXPECT_THAT(NamesOf(*root->children()[0].second), ElementsAre("k_scale", "v_scale"));
  HoldScales(*root, {});
  EXPECT_TRUE(root->children()[0].second->parameters().empty());
}

TEST(HeldScales, OfACacheTakeOneForKeysAndOneForValuesOrOneForBoth) {
  const auto root = CacheBelow();
  HoldScales(*root, {.kv_cache = true});
  const Resolution values = root->Resolve(Number("attn.v_scale"));
  EXPECT_EQ(values.owner_path, "attn");
  EXPECT_EQ(values.pieces.at(0).parameter, 1U);
  const Resolution both = root->Resolve(Number("attn.kv_scale", {1}));
  ASSERT_EQ(both.pieces.size(), 2U);
  EXPECT_EQ(both.pieces[0].parameter, 0U);
  EXPECT_EQ(both.pieces[1].parameter, 1U);
  EXPECT_THAT(ErrorOf([&] { (void)root->Resolve(Number("attn.k_scale", {4})); }), HasSubstr("got [4] f32"));
  EXPECT_THAT(root->Resolve(Number("attn.q_scale")).skip_rule, HasSubstr("queries"));
  EXPECT_THAT(root->Resolve(Number("attn.q_zero_point")).skip_rule, HasSubstr("queries"));
  EXPECT_THAT(root->Resolve(Number("attn.k_zero_point")).skip_rule, HasSubstr("zero points"));
  for (const Parameter& parameter : root->children()[0].second->parameters()) {
    EXPECT_EQ(parameter.spec.shape, Shape{1});
    EXPECT_EQ(parameter.sign, Sign::kPositive);
    EXPECT_EQ(parameter.fallback, 1.0F);
  }
}

const LayerContext kContext{.parallel = {1, 2}};

MergedColumnParallelLinear GateUp() { return {kContext, 64, {{"gate_proj", 32}, {"up_proj", 32}}, true}; }

TEST(HeldScales, OfActivationsAreOneForEachLayerThatARecipeAppliesTo) {
  MergedColumnParallelLinear gate_up = GateUp();
  HoldScales(gate_up, {.inputs = true});
  EXPECT_THAT(NamesOf(gate_up), ElementsAre("weight", "bias", "input_scale"));
  EXPECT_EQ(gate_up.parameters()[2].sign, Sign::kPositive);
  EXPECT_EQ(gate_up.parameters()[2].fallback, std::nullopt);
  EXPECT_EQ(gate_up.Place("input_scale", "", Number("s")).at(0).parameter, 2U);
  EXPECT_THAT(ErrorOf([&] { (void)gate_up.Place("input_scale", "0", Number("s")); }),
              HasSubstr("expected one scale of the whole fused layer, got one of its part '0' alone"));

  ReplicatedLinear exempt(kContext.Unquantized(), 64, 32, false);
  HoldScales(exempt, {.inputs = true});
  EXPECT_THAT(NamesOf(exempt), ElementsAre("weight"));
  gate_up.SetQuantization(false, std::nullopt);  // config.json leaves it out
  EXPECT_THAT(NamesOf(gate_up), ElementsAre("weight", "bias"));
}

TEST(HeldScales, OfActivationsStayBehindTheOthersWhateverTheWeightsFormIs) {
  MergedColumnParallelLinear gate_up = GateUp();
  gate_up.SetQuantization(true, QuantizedForm{.scales = QuantizedForm::Scales::kChannel});
  EXPECT_EQ(gate_up.skip_rules().size(), 2U);  // what others call them, and what transformers does
  gate_up.TakeQuantized(true);
  HoldScales(gate_up, {.inputs = true});
  EXPECT_EQ(gate_up.skip_rules().size(), 0U);
  EXPECT_THAT(NamesOf(gate_up), ElementsAre("weight", "weight_scale", "bias", "input_scale"));
  gate_up.TakeQuantized(false);
  EXPECT_THAT(NamesOf(gate_up), ElementsAre("weight", "bias", "input_scale"));
  HoldScales(gate_up, {});
  EXPECT_THAT(NamesOf(gate_up), ElementsAre("weight", "bias"));
  EXPECT_EQ(gate_up.skip_rules().size(), 2U);
}

TEST(HeldScales, OfExpertsActivationsAreTwo) {
  FusedMoE experts({.parallel = {1, 2}},
                   {.num_experts = 4, .hidden_size = 300, .intermediate_size = 512, .bias = true});
  experts.SetQuantization(true, QuantizedForm{.scales = QuantizedForm::Scales::kChannel});
  HoldScales(experts, {.inputs = true});
  EXPECT_THAT(NamesOf(experts),
              ElementsAre("w13_weight", "w2_weight", "w13_bias", "w2_bias", "w13_input_scale", "w2_input_scale"));
  EXPECT_EQ(experts.Place("w2_input_scale", "", Number("s")).at(0).parameter, 5U);
  EXPECT_TRUE(experts.Padding(5).empty());
  EXPECT_FALSE(experts.Padding(3).empty());
  EXPECT_EQ(experts.Expected(4, "mlp.experts").at(0).name, "mlp.experts.w13_input_scale");
  EXPECT_THROW((void)experts.Place("3.gate_proj.input_scale", "", Number("s")), Error);
  HoldScales(experts, {});
  for (const char* name : {"3.gate_proj.input_scale", "gate_up_proj_input_scale", "down_proj_input_scale"}) {
    EXPECT_THAT(experts.Resolve(Number(name)).skip_rule, HasSubstr("activations")) << name;
  }
}

}  // namespace
}  // namespace layercast
