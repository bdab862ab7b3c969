// Configurations of one model and of two, over every family: whatever changes a tree's constants is named, whatever
// does not is taken.
#include "engine_side/model/registry/served_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/engine_side/model/tree_constants.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using Json = nlohmann::json;
using ::testing::AnyOf;
using testing::ConfigWith;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MinimalConfig;
using testing::TreeConstants;

// A small model of any family: four layers, of every kind that the family has.
Json SampleOf(const std::string& architecture) {
  Json config = {{"architectures", {architecture}},
                 {"vocab_size", 96},
                 {"hidden_size", 32},
                 {"intermediate_size", 64},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"head_dim", 8},
                 {"sliding_window", 8},
                 {"num_experts_per_tok", 2},
                 {"num_experts", 4},
                 {"moe_intermediate_size", 16},
                 {"n_group", 2},
                 {"topk_group", 1},
                 {"first_k_dense_replace", 1},
                 {"q_lora_rank", 8},
                 {"kv_lora_rank", 8},
                 {"qk_nope_head_dim", 8},
                 {"qk_rope_head_dim", 4},
                 {"v_head_dim", 8}};
  if (architecture == "NemotronHForCausalLM") config["hybrid_override_pattern"] = "M-*E";
  if (architecture == "DeepseekV2ForCausalLM") config["topk_method"] = "group_limited_greedy";
  if (architecture == "Mamba2ForCausalLM") config.update({{"num_heads", 16}, {"head_dim", 4}, {"expand", 2}});
  return config;
}

std::unique_ptr<Module> TreeOf(const Json& config) {
  return ModelRegistry::Builtin().Build(ModelConfig::Parse(config.dump()), {});
}

// Null if there is no such model.
std::unique_ptr<Module> TreeIfPossible(const Json& config) {
  try {
    return TreeOf(config);
  } catch (const Error&) {
    return nullptr;
  }
}

std::vector<std::string> NamedFields(const std::vector<ConfigDifference>& differences) {
  std::vector<std::string> fields;
  for (const ConfigDifference& difference : differences) fields.push_back(difference.field);
  return fields;
}

std::vector<ConfigDifference> ConfigDifferences(const Json& ours, const Json& theirs) {
  return TreeOf(ours)->config()->DifferencesFrom(theirs.dump());
}

Json WithFields(Json config, const Json& fields) {
  config.update(fields);
  return config;
}

// A configuration that differs in one thing, and what that is called.
struct Variation {
  Json fields;
  std::string named;
};

// One for each field that any family reads.
const std::vector<Variation>& Variations() {
  static const std::vector<Variation> kVariations = {
      {{{"vocab_size", 97}}, "vocab_size"},
      {{{"hidden_size", 64}}, "hidden_size"},
      {{{"intermediate_size", 128}}, "intermediate_size"},
      {{{"num_hidden_layers", 3}}, "num_hidden_layers"},
      {{{"num_attention_heads", 8}}, "num_attention_heads"},
      {{{"num_key_value_heads", 4}}, "num_key_value_heads"},
      {{{"head_dim", 16}}, "head_dim"},
      {{{"rms_norm_eps", 1e-3}}, "rms_norm_eps"},
      {{{"layer_norm_epsilon", 1e-3}}, "rms_norm_eps"},
      {{{"hidden_act", "gelu"}}, "hidden_act"},
      {{{"hidden_activation", "gelu"}}, "hidden_act"},
      {{{"mlp_hidden_act", "silu"}}, "hidden_act"},
      {{{"tie_word_embeddings", true}}, "tie_word_embeddings"},
      {{{"tie_word_embeddings", false}}, "tie_word_embeddings"},
      {{{"attention_bias", true}}, "attention_bias"},
      {{{"mlp_bias", true}}, "mlp_bias"},
      {{{"qkv_bias", false}}, "qkv_bias"},
      {{{"use_qk_norm", true}}, "use_qk_norm"},
      {{{"rope_theta", 12345.0}}, "rope_theta"},
      {{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 12345.0}}}}, "rope_theta"},
      {{{"rope_local_base_freq", 12345.0}}, "rope_theta of sliding_attention"},
      {{{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}, "rope_type"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale_all_dim", 0.7}}}}, "rope_"},
      {{{"partial_rotary_factor", 0.25}}, "rope_parameters.partial_rotary_factor"},
      {{{"rotary_dim", 2}}, "rope_parameters.partial_rotary_factor"},
      {{{"sliding_window", 16}}, "sliding_window"},
      {{{"use_sliding_window", true}}, "layer_types"},
      {{{"use_sliding_window", true}, {"max_window_layers", 2}}, "layer_types"},
      {{{"sliding_window_pattern", 3}}, "layer_types"},
      {{{"full_attention_interval", 2}}, "layer_types"},
      {{{"layer_types", {"full_attention", "full_attention", "sliding_attention", "full_attention"}}}, "layer_types"},
      {{{"hybrid_override_pattern", "*-ME"}}, "layer_types"},
      {{{"query_pre_attn_scalar", 99}}, "query_pre_attn_scalar"},
      {{{"attn_logit_softcapping", 9.0}}, "attn_logit_softcapping"},
      {{{"final_logit_softcapping", 9.0}}, "final_logit_softcapping"},
      {{{"num_experts", 8}}, "num_experts"},
      {{{"num_experts_per_tok", 1}}, "num_experts_per_tok"},
      {{{"moe_intermediate_size", 32}}, "moe_intermediate_size"},
      {{{"shared_expert_intermediate_size", 24}}, "shared_expert_intermediate_size"},
      {{{"moe_shared_expert_intermediate_size", 24}}, "shared_expert_intermediate_size"},
      {{{"n_shared_experts", 3}}, "shared_expert_intermediate_size"},
      {{{"moe_latent_size", 8}}, "moe_latent_size"},
      {{{"norm_topk_prob", true}}, "norm_topk_prob"},
      {{{"norm_topk_prob", false}}, "norm_topk_prob"},
      {{{"routed_scaling_factor", 1.7}}, "routed_scaling_factor"},
      {{{"n_group", 1}}, "n_group"},
      {{{"topk_group", 2}}, "topk_group"},
      {{{"first_k_dense_replace", 2}}, "layers with experts"},
      {{{"decoder_sparse_step", 2}}, "layers with experts"},
      {{{"moe_layer_freq", 2}}, "layers with experts"},
      {{{"mlp_only_layers", {2}}}, "layers with experts"},
      {{{"topk_method", "greedy"}}, "topk_method"},
      {{{"scoring_func", "softmax"}}, "scoring_func"},
      {{{"q_lora_rank", nullptr}}, "q_lora_rank"},
      {{{"kv_lora_rank", 16}}, "kv_lora_rank"},
      {{{"qk_nope_head_dim", 16}}, "qk_nope_head_dim"},
      {{{"qk_rope_head_dim", 8}}, "qk_rope_head_dim"},
      {{{"v_head_dim", 16}}, "v_head_dim"},
      {{{"rope_interleave", false}}, "rope_interleave"},
      {{{"swiglu_limit", 3.0}}, "swiglu_limit"},
      {{{"swiglu_alpha", 3.0}}, "swiglu_alpha"},
      {{{"linear_num_key_heads", 8}}, "linear_num_key_heads"},
      {{{"linear_num_value_heads", 64}}, "linear_num_value_heads"},
      {{{"linear_key_head_dim", 64}}, "linear_key_head_dim"},
      {{{"linear_value_head_dim", 64}}, "linear_value_head_dim"},
      {{{"linear_conv_kernel_dim", 3}}, "linear_conv_kernel_dim"},
      {{{"num_heads", 8}}, "num_heads"},
      {{{"state_size", 16}}, "state_size"},
      {{{"mamba_num_heads", 64}}, "mamba_num_heads"},
      {{{"mamba_head_dim", 32}}, "mamba_head_dim"},
      {{{"ssm_state_size", 16}}, "ssm_state_size"},
      {{{"n_groups", 4}}, "n_groups"},
      {{{"conv_kernel", 3}}, "conv_kernel"},
      {{{"use_bias", true}}, "use_bias"},
      {{{"use_conv_bias", false}}, "use_conv_bias"},
      {{{"time_step_limit", {0.0, 1.0}}}, "time_step_limit"},
      {{{"time_step_min", 0.5}}, "time_step_min"},
      {{{"residual_in_fp32", false}}, "residual_in_fp32"}};
  return kVariations;
}

bool IsNamed(const std::vector<ConfigDifference>& differences, const std::string& field) {
  return std::ranges::any_of(differences, [&](const ConfigDifference& each) { return each.field.starts_with(field); });
}

// The tree, which the engine computes by, says what matters.
TEST(ServedConfig, NamesWhateverChangesWhatAnyFamilyComputes) {
  std::set<const Variation*> told;
  for (const std::string& architecture : ModelRegistry::Builtin().architectures()) {
    const Json ours = SampleOf(architecture);
    const auto tree = TreeOf(ours);
    for (const Variation& variation : Variations()) {
      SCOPED_TRACE(architecture + " with " + variation.fields.dump());
      const Json theirs = WithFields(ours, variation.fields);
      const auto other = TreeIfPossible(theirs);
      if (other == nullptr || TreeConstants(*other) == TreeConstants(*tree)) continue;
      EXPECT_TRUE(IsNamed(tree->config()->DifferencesFrom(theirs.dump()), variation.named));
      EXPECT_TRUE(IsNamed(other->config()->DifferencesFrom(ours.dump()), variation.named));
      told.insert(&variation);
    }
  }
  for (const Variation& variation : Variations()) {
    const bool read_by_some_family = told.contains(&variation) || variation.named == "scoring_func";  // one value each
    EXPECT_TRUE(read_by_some_family) << variation.fields;
  }
}

TEST(ServedConfig, HasAVariationOfEveryFieldThatAFamilyReads) {
  for (const std::string& architecture : ModelRegistry::Builtin().architectures()) {
    ModelConfig config = ModelConfig::Parse(SampleOf(architecture).dump());
    config.on_field = [&](std::string_view field, std::string_view) {
      EXPECT_TRUE(std::ranges::any_of(Variations(), [&](const Variation& each) { return each.named == field; }))
          << architecture << " reads " << field << ": add a variation of it";
    };
    (void)ModelRegistry::Builtin().Build(config, {});
  }
}

TEST(ServedConfig, NamesHeadsWhoseTensorsHaveTheSameShapes) {
  EXPECT_THAT(ConfigDifferences(ConfigWith({{"num_key_value_heads", 4}}),
                                ConfigWith({{"num_attention_heads", 4}, {"num_key_value_heads", 2}})),
              ElementsAre(ConfigDifference{"head_dim", "8", "16"}, ConfigDifference{"num_attention_heads", "8", "4"},
                          ConfigDifference{"num_key_value_heads", "4", "2"}));
}

TEST(ServedConfig, TakesWhateverChangesNothing) {
  const std::vector<Json> variations = {{{"dtype", "float32"}},
                                        {{"torch_dtype", "float64"}},
                                        {{"transformers_version", "9.0"}},
                                        {{"use_cache", false}},
                                        {{"_name_or_path", "somewhere"}},
                                        {{"bos_token_id", 5}, {"eos_token_id", {6, 7}}, {"pad_token_id", 8}},
                                        {{"initializer_range", 0.5}},
                                        {{"attention_dropout", 0.1}, {"hidden_dropout", 0.1}, {"resid_pdrop", 0.1}},
                                        {{"pretraining_tp", 4}},
                                        {{"router_aux_loss_coef", 0.1}, {"output_router_logits", true}},
                                        {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
                                        {{"max_position_embeddings", 77}},
                                        {{"num_nextn_predict_layers", 0}},
                                        {{"auto_map", {{"AutoModel", "modeling.Mine"}}}}};
  for (const std::string& architecture : ModelRegistry::Builtin().architectures()) {
    const Json ours = SampleOf(architecture);
    const auto tree = TreeOf(ours);
    for (const Json& variation : variations) {
      const Json theirs = WithFields(ours, variation);
      EXPECT_THAT(NamedFields(tree->config()->DifferencesFrom(theirs.dump())), IsEmpty()) << architecture << variation;
    }
  }
}

TEST(ServedConfig, FillsInTheFamilysDefaultsOnBothSides) {
  const Json gemma = SampleOf("Gemma2ForCausalLM");
  EXPECT_THAT(
      ConfigDifferences(gemma, WithFields(gemma, {{"final_logit_softcapping", 30.0}, {"query_pre_attn_scalar", 256}})),
      IsEmpty());
  EXPECT_THAT(ConfigDifferences(WithFields(gemma, {{"final_logit_softcapping", 9.0}}), gemma),
              ElementsAre(ConfigDifference{"final_logit_softcapping", "9.0", "30.0"}));
  const Json glm = SampleOf("Glm4MoeForCausalLM");
  EXPECT_THAT(ConfigDifferences(glm, WithFields(glm, {{"norm_topk_prob", true}})), IsEmpty());
  const Json mamba = SampleOf("Mamba2ForCausalLM");
  const Json infinite = {{"time_step_limit", {0.0, {{"__float__", "Infinity"}}}}};
  EXPECT_THAT(ConfigDifferences(mamba, WithFields(mamba, infinite)), IsEmpty());
}

TEST(ServedConfig, KnowsOneValueInManySpellings) {
  const auto same = [](const Json& one, const Json& other) {
    EXPECT_THAT(NamedFields(ConfigDifferences(ConfigWith(one), ConfigWith(other))), IsEmpty())
        << one << " and " << other;
    EXPECT_THAT(NamedFields(ConfigDifferences(ConfigWith(other), ConfigWith(one))), IsEmpty())
        << other << " and " << one;
  };
  same({{"rope_theta", 1e6}}, {{"rope_theta", 1000000}});
  same({{"rope_theta", 1e6}}, {{"rope_parameters", {{"rope_theta", 1000000.0}, {"rope_type", "default"}}}});
  same({{"rope_theta", 1e6}}, {{"rope_theta", 1e6}, {"rope_scaling", nullptr}});
  const Json each = {{"rope_theta", 1e6}, {"rope_type", "default"}};
  same({{"rope_theta", 1e6}, {"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 1}},
       {{"rope_parameters", {{"full_attention", each}, {"sliding_attention", each}}},
        {"use_sliding_window", true},
        {"sliding_window", 8},
        {"max_window_layers", 1}});
  const Json yarn = {{"factor", 4}, {"original_max_position_embeddings", 512}};
  same({{"rope_theta", 1e6}, {"rope_scaling", WithFields(yarn, {{"type", "yarn"}})}},
       {{"rope_parameters", WithFields(yarn, {{"rope_type", "yarn"},
                                              {"rope_theta", 1e6},
                                              {"beta_fast", 32.0},
                                              {"beta_slow", 1},
                                              {"partial_rotary_factor", 1.0}})}});
  same({{"rope_scaling", WithFields(yarn, {{"type", "su"}})}},
       {{"rope_scaling", WithFields(yarn, {{"rope_type", "longrope"}})}});
  same(Json::object(), {{"num_key_value_heads", 8}});
  same(Json::object(), {{"head_dim", 8}});
  same(Json::object(), {{"hidden_act", "swish"}});
  same({{"hidden_act", "gelu_new"}}, {{"hidden_act", "gelu_pytorch_tanh"}});
  same({{"use_sliding_window", false}, {"sliding_window", 16}}, {{"sliding_window", nullptr}});
  same({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 3}}, Json::object());
  same({{"sliding_window", 8},
        {"use_sliding_window", true},
        {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}}},
       {{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 1}});
  same({{"tie_word_embeddings", false}}, {{"tie_word_embeddings", nullptr}});
}

TEST(ServedConfig, KnowsTheNamesThatExpertsHave) {
  const Json ours = SampleOf("Qwen3MoeForCausalLM");
  Json theirs = ours;
  theirs.erase("num_experts");
  EXPECT_THAT(ConfigDifferences(ours, WithFields(theirs, {{"num_local_experts", 4}})), IsEmpty());
  EXPECT_THAT(ConfigDifferences(ours, WithFields(theirs, {{"num_local_experts", 8}})),
              ElementsAre(ConfigDifference{"num_experts", "4", "8"}));
}

TEST(ServedConfig, ReadsWhatATextConfigHolds) {
  const Json text = SampleOf("Gemma3ForCausalLM");
  Json nested = {{"architectures", {"Gemma3ForConditionalGeneration"}}, {"text_config", text}};
  nested["text_config"].erase("architectures");
  EXPECT_THAT(NamedFields(ConfigDifferences(text, nested)), IsEmpty());
  EXPECT_THAT(NamedFields(ConfigDifferences(nested, text)), IsEmpty());
  nested["text_config"]["rms_norm_eps"] = 0.5;
  EXPECT_THAT(ConfigDifferences(text, nested), ElementsAre(ConfigDifference{"rms_norm_eps", "1e-06", "0.5"}));
}

TEST(ServedConfig, TellsFamiliesApartAndNotTheClassesThatSaveThem) {
  const Json ours = MinimalConfig();
  EXPECT_THAT(ConfigDifferences(ours, ConfigWith({{"architectures", {"LlamaModel"}}})), IsEmpty());
  EXPECT_THAT(ConfigDifferences(ours, ConfigWith({{"architectures", nullptr}})), IsEmpty());
  EXPECT_THAT(ConfigDifferences(ours, ConfigWith({{"architectures", {"MistralForCausalLM"}}})),
              ElementsAre(ConfigDifference{"architectures", "[\"LlamaForCausalLM\"]", "[\"MistralForCausalLM\"]"}));
  EXPECT_THAT(ConfigDifferences(ours, ConfigWith({{"architectures", {"NeverHeardOfIt"}}})),
              ElementsAre(ConfigDifference{"architectures", "[\"LlamaForCausalLM\"]", "[\"NeverHeardOfIt\"]"}));
  const Json vision = SampleOf("Qwen3_5ForConditionalGeneration");
  EXPECT_THAT(NamedFields(ConfigDifferences(vision, SampleOf("Qwen3_5ForCausalLM"))), IsEmpty());
}

TEST(ServedConfig, ComparesNoMoreThanATextSaysThatNamesNoModel) {
  const Json ours = ConfigWith({{"rope_theta", 1e6}, {"num_key_value_heads", 2}, {"rms_norm_eps", 1e-5}});
  EXPECT_THAT(ConfigDifferences(ours, Json::object()), IsEmpty());
  EXPECT_THAT(ConfigDifferences(ours, {{"rope_theta", 1000000}, {"num_key_value_heads", 2}}), IsEmpty());
  EXPECT_THAT(ConfigDifferences(ours, {{"rope_theta", 10000.0}}),
              ElementsAre(ConfigDifference{"rope_theta", "1000000.0", "10000.0"}));
  const Json newer = ConfigWith({{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}}});
  EXPECT_THAT(ConfigDifferences(newer, {{"rope_theta", 10000.0}}),
              ElementsAre(ConfigDifference{"rope_theta", "1000000.0", "10000.0"}));
  EXPECT_THAT(ConfigDifferences(newer, {{"rope_theta", 1e6}}), IsEmpty());
}

TEST(ServedConfig, ShowsWhereListsDiffer) {
  const Json ours = ConfigWith(
      {{"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}}, {"sliding_window", 8}});
  Json theirs = ours;
  theirs["layer_types"][1] = "full_attention";
  EXPECT_THAT(ConfigDifferences(ours, theirs),
              ElementsAre(ConfigDifference{"layer_types[1]", "\"sliding_attention\"", "\"full_attention\""}));
  EXPECT_EQ(Sentence({"rope_theta", "1e6", "2.0"}), "rope_theta: expected 1e6, got 2.0");
}

TEST(ServedConfig, RefusesATextThatIsNoConfiguration) {
  const auto tree = TreeOf(MinimalConfig());
  for (const char* text :
       {"", "[]", "{", "{\"architectures\": 3}", "{\"text_config\": 3, \"model_type\": \"llama\"}"}) {
    EXPECT_THAT(ErrorOf([&] { (void)tree->config()->DifferencesFrom(text); }, ErrorCode::kInvalidArgument),
                HasSubstr("config.json"))
        << text;
  }
}

TEST(ServedConfig, ComparesTheDraftModelsToo) {
  const Json draft = {{"architectures", {"LlamaForCausalLMEagle3"}},
                      {"vocab_size", 100},
                      {"hidden_size", 64},
                      {"intermediate_size", 128},
                      {"num_hidden_layers", 1},
                      {"num_attention_heads", 8},
                      {"draft_vocab_size", 50}};
  const auto tree = ModelRegistry::Builtin().BuildWithDraft(ModelConfig::Parse(MinimalConfig().dump()),
                                                            ModelConfig::Parse(draft.dump()), {});
  const ServedConfig& config = *tree->config();
  EXPECT_THAT(config.DraftDifferencesFrom(draft.dump()), IsEmpty());
  EXPECT_THAT(config.DraftDifferencesFrom(WithFields(draft, {{"rms_norm_eps", 0.5}}).dump()),
              ElementsAre(ConfigDifference{"rms_norm_eps", "1e-06", "0.5"}));
  EXPECT_THAT(config.DraftDifferencesFrom(WithFields(draft, {{"draft_vocab_size", 40}}).dump()),
              ElementsAre(ConfigDifference{"draft_vocab_size", "50", "40"}));
  EXPECT_THAT(TreeOf(MinimalConfig())->config()->DraftDifferencesFrom(draft.dump()), IsEmpty());
}

}  // namespace
}  // namespace layercast
