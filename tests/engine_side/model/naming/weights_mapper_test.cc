#include "layercast/model/weights_mapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/embedding.h"
#include "layercast/model/norm.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Tree;
using Match = NameRule::Match;

std::string Mapped(const WeightsMapper& mapper, const std::string& name) {
  const WeightsMapper::Mapping mapping = mapper.Map(name);
  EXPECT_EQ(mapper.Matches(name), !mapping.applied.empty()) << name;
  return mapping.dropped ? "dropped" : mapping.name;
}

std::string Refusal(const std::function<void()>& call) { return testing::ErrorOf(call, ErrorCode::kInvalidArgument); }

TEST(WeightsMapper, LeavesNamesAloneWithoutRules) {
  const WeightsMapper mapper;
  EXPECT_TRUE(mapper.empty());
  EXPECT_EQ(Mapped(mapper, "model.norm.weight"), "model.norm.weight");
  EXPECT_THAT(mapper.Map("x").applied, IsEmpty());
}

TEST(WeightsMapper, MatchesWholeSegmentsAlone) {
  const WeightsMapper mapper(
      {NameRule::Segments("v_proj", "value"), NameRule::Prefix("model", "m"), NameRule::Suffix("scale", "factor")});
  EXPECT_EQ(Mapped(mapper, "model.a.v_proj.weight"), "m.a.value.weight");
  EXPECT_EQ(Mapped(mapper, "v_proj.b.v_proj"), "value.b.value");  // every time
  for (const char* name : {"models.a.qkv_proj.weight", "a.v_proj2.w", "a.model.w", "a.scale.w", "a.weight_scale"}) {
    EXPECT_EQ(Mapped(mapper, name), name);
  }
  EXPECT_EQ(Mapped(mapper, "a.scale"), "a.factor");
}

TEST(WeightsMapper, TakesSegmentsAwayWithTheirDot) {
  const WeightsMapper mapper({NameRule::Prefix("module", ""), NameRule::Segments("base_layer", "")});
  EXPECT_EQ(Mapped(mapper, "module.layers.0.base_layer.weight"), "layers.0.weight");
  EXPECT_EQ(Mapped(mapper, "module.layers.base_layer"), "layers");
}

TEST(WeightsMapper, TakesRegularExpressionsWithGroups) {
  const WeightsMapper mapper({NameRule::Regex(R"(^blk\.(\d+)\.attn_([qkv])\.)", "model.layers.$1.self_attn.$2_proj.")});
  EXPECT_EQ(Mapped(mapper, "blk.12.attn_q.weight"), "model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(Mapped(mapper, "blk.12.attn_norm.weight"), "blk.12.attn_norm.weight");
}

TEST(WeightsMapper, AppliesRulesInOrderEachToWhatTheOneBeforeMade) {
  const WeightsMapper mapper(
      {NameRule::Prefix("actor", "policy"), NameRule::Prefix("policy", "model"), NameRule::Suffix("w", "weight")});
  const WeightsMapper::Mapping mapping = mapper.Map("actor.norm.w");
  EXPECT_EQ(mapping.name, "model.norm.weight");
  EXPECT_THAT(mapping.applied, ElementsAre(0, 1, 2));
}

TEST(WeightsMapper, DropsWithAReason) {
  const WeightsMapper mapper({NameRule::Drop(Match::kPrefix, "vision_tower", "text only"),
                              NameRule::Drop(Match::kSegments, "lora_A", "adapters come elsewhere"),
                              NameRule::Drop(Match::kRegex, R"(\.\d+\.extra$)", "not ours")});
  EXPECT_EQ(Mapped(mapper, "vision_tower.x.weight"), "dropped");
  EXPECT_EQ(Mapped(mapper, "a.lora_A.weight"), "dropped");
  EXPECT_EQ(Mapped(mapper, "a.3.extra"), "dropped");
  EXPECT_EQ(Mapped(mapper, "my_vision_tower.x"), "my_vision_tower.x");
  EXPECT_EQ(mapper.rules()[mapper.Map("a.lora_A.weight").applied.back()].Describe(),
            "drop segments lora_A: adapters come elsewhere");
}

TEST(WeightsMapper, Composes) {
  const WeightsMapper host({NameRule::Prefix("policy", "language_model")});
  const WeightsMapper family({NameRule::Prefix("language_model", "model")});
  EXPECT_EQ(Mapped(host | family, "policy.norm"), "model.norm");
  EXPECT_THAT(Refusal([&] { (void)(family | host).Map("policy.norm"); }), HasSubstr("would map again"));
}

TEST(WeightsMapper, LeavesItsOwnResultAlone) {
  const WeightsMapper mapper({NameRule::Prefix("model", "model.text"), NameRule::Suffix("k_scale", "attn.k_scale"),
                              NameRule::Segments("mlp", "mlp.dense")});
  for (const char* name : {"model.a.b", "model.text.a.b", "a.k_scale", "a.attn.k_scale", "a.mlp.b", "a.mlp.dense.b"}) {
    const std::string once = Mapped(mapper, name);
    EXPECT_EQ(Mapped(mapper, once), once) << name;
  }
  EXPECT_EQ(Mapped(mapper, "model.a.mlp.k_scale"), "model.text.a.mlp.dense.attn.k_scale");
}

TEST(WeightsMapper, RefusesToMapWhatItHasMapped) {
  const WeightsMapper swap({NameRule::Prefix("b", "a"), NameRule::Prefix("a", "b")});
  EXPECT_EQ(Refusal([&] { (void)swap.Map("a.x"); }),
            "weights mapper: 'a.x' becomes 'b.x', which rule 'prefix b -> a' would map again");
  const WeightsMapper growing({NameRule::Regex("proj", "my_proj")});
  EXPECT_THAT(Refusal([&] { (void)growing.Map("q_proj.weight"); }), HasSubstr("'regex proj -> my_proj'"));
}

TEST(WeightsMapper, RefusesRulesThatCannotBe) {
  EXPECT_THAT(Refusal([] { WeightsMapper({NameRule::Prefix("model.", "m")}); }),
              HasSubstr("rule 'prefix model. -> m': expected whole path segments"));
  EXPECT_THAT(Refusal([] { WeightsMapper({NameRule::Segments("", "m")}); }), HasSubstr("nothing to match"));
  EXPECT_THAT(Refusal([] { WeightsMapper({NameRule::Regex("(", "")}); }), HasSubstr("rule 'regex ( -> '"));
  const WeightsMapper no_such_group({NameRule::Regex("a", "$1")});
  EXPECT_THAT(Refusal([&] { (void)no_such_group.Map("a"); }),
              HasSubstr("rule 'regex a -> $1': regular expression 'a'"));
}

TEST(WeightsMapper, AnExpressionThatWouldTakeForEverIsRefused) {
  const WeightsMapper mapper({NameRule::Regex("(a*)*[bc]", "c")});
  const std::string name(5000, 'a');
  EXPECT_THAT(Refusal([&] { (void)mapper.Map(name); }), HasSubstr("rule 'regex (a*)*[bc] -> c'"));
  EXPECT_THAT(Refusal([&] { (void)mapper.Matches(name); }), HasSubstr("match limit exceeded"));
}

// The table of vLLM's own test of these names, and the forms that it leaves out; but for one scale for keys and values,
// which it calls the keys', and gives to the values later.
TEST(KvScaleNames, KnowEveryForm) {
  const std::string attention = "model.layers.0.self_attn.";
  const std::vector<std::pair<std::string, std::string>> forms = {
      {attention + "qkv_proj.k_scale", attention + "attn.k_scale"},
      {attention + "qkv_proj.v_scale", attention + "attn.v_scale"},
      {attention + "qkqkv_proj.v_scale", attention + "attn.v_scale"},
      {attention + "k_proj.k_scale", attention + "attn.k_scale"},
      {attention + "v_proj.v_scale", attention + "attn.v_scale"},
      {attention + "kv_scale", attention + "attn.kv_scale"},
      {attention + "k_scale", attention + "attn.k_scale"},
      {attention + "q.scale", attention + "attn.q_scale"},
      {attention + "k_cache.scale", attention + "attn.k_scale"},
      {attention + "v_cache.scale", attention + "attn.v_scale"},
      {attention + "k_zero_point", attention + "attn.k_zero_point"},
      {attention + "k_proj.output_scale", attention + "attn.k_scale"},
      {attention + "v_proj.output_scale", attention + "attn.v_scale"},
      {"backbone.layers.3.mixer.k_proj.k_scale", "backbone.layers.3.mixer.attn.k_scale"},
  };
  const WeightsMapper mapper = KvScaleNames();
  for (const auto& [name, expected] : forms) {
    EXPECT_EQ(Mapped(mapper, name), expected);
    EXPECT_EQ(Mapped(mapper, expected), expected);
  }
  for (const char* other : {"k_proj.weight_scale", "k_proj.input_scale", "q_proj.weight", "attn.k_scale"}) {
    EXPECT_EQ(Mapped(mapper, attention + other), attention + other);
  }
}

TEST(Module, ResolvesMappedNames) {
  Tree root("RootForCausalLM");
  root.Add("norm", std::make_unique<RMSNorm>(LayerContext{.dtype = DType::kF32}, 8));
  root.SetMapper(
      WeightsMapper({NameRule::Prefix("policy", ""), NameRule::Drop(Match::kPrefix, "value_head", "no critic")}));
  const Resolution to = root.Resolve({"policy.norm.weight", DType::kF32, {8}});
  EXPECT_EQ(to.owner_path, "norm");
  EXPECT_EQ(to.tree_name, "norm.weight");
  EXPECT_EQ(root.Resolve({"norm.weight", DType::kF32, {8}}).tree_name, "");
  EXPECT_EQ(root.Resolve({"value_head.weight", DType::kF32, {8}}).skip_rule, "no critic");
  EXPECT_EQ(Refusal([&] { (void)root.Resolve({"policy.norm.weight", DType::kF32, {9}}); }),
            "layer norm: 'policy.norm.weight' (mapped to 'norm.weight') expected [8] f32, got [9] f32");
}

}  // namespace
}  // namespace layercast
