// Models' configurations with a few fields of another kind, size or sign: either an error of the config's, or a tree
// whose parameters have sizes. Most useful under the sanitizers.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "layercast/model/weight_rules.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzzing.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

// Every field that a family or a recipe reads, so that each is there to be damaged.
constexpr const char* kFields = R"({
  "vocab_size": 96, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "torch_dtype": "bfloat16", "max_position_embeddings": 128,
  "rms_norm_eps": 1e-6, "hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": false,
  "attention_bias": false, "mlp_bias": false, "qkv_bias": true, "use_qk_norm": true, "query_pre_attn_scalar": 16,
  "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "rope_theta": 10000.0,
  "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
  "partial_rotary_factor": 0.5, "rotary_dim": 4, "rope_local_base_freq": 10000.0, "sliding_window": 8,
  "use_sliding_window": true, "max_window_layers": 2, "sliding_window_pattern": 2, "layer_types": null,
  "bos_token_id": 1, "eos_token_id": [2, 3], "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "n_shared_experts": 1,
  "norm_topk_prob": true, "routed_scaling_factor": 1.5, "n_group": 2, "topk_group": 1, "topk_method": "noaux_tc",
  "first_k_dense_replace": 1, "moe_layer_freq": 1, "decoder_sparse_step": 1, "mlp_only_layers": [],
  "moe_latent_size": 8, "num_nextn_predict_layers": 1, "num_mtp_layers": 1, "q_lora_rank": 8, "kv_lora_rank": 8,
  "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "rope_interleave": true, "swiglu_limit": 7.0,
  "swiglu_alpha": 1.7,
  "full_attention_interval": null, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
  "linear_value_head_dim": 4, "linear_conv_kernel_dim": 4, "state_size": 8, "ssm_state_size": 8, "conv_kernel": 4,
  "num_heads": 4, "n_groups": 2, "expand": 2, "mamba_num_heads": 4, "mamba_head_dim": 8, "use_bias": false,
  "use_conv_bias": true, "residual_in_fp32": true, "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, 1.0],
  "time_step_min": 0.001, "hybrid_override_pattern": "M*-E", "draft_vocab_size": 48, "quantization_config": null})";

constexpr const char* kQuantizations[] = {
    R"({"quant_method": "fp8", "weight_block_size": [8, 8], "ignore": ["lm_head", "re:.*norm", "*.gate"]})",
    R"({"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"g": {"weights":
      {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}}}})",
    R"({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights":
      {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [8, 8]}}}})",
    R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]})",
    R"({"quant_method": "modelopt", "quant_algo": "mxfp8", "group_size": 32, "ignore": ["lm_head"]})",
    R"({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})",
    R"({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})"};

Json Edge(Damage& damage) {
  static const std::vector<Json> kEdges = {nullptr,
                                           0,
                                           1,
                                           2,
                                           3,
                                           5,
                                           8,
                                           64,
                                           -1,
                                           10'000,
                                           65'536,
                                           0x7FFF'FFFF,
                                           0x8000'0000LL,
                                           std::int64_t{1} << 62,
                                           std::uint64_t{1} << 63,
                                           1e300,
                                           -0.5,
                                           0.5,
                                           true,
                                           false,
                                           "",
                                           "x",
                                           "silu",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({1, -1}),
                                           Json::array({"full_attention"}),
                                           Json::array({0.0, nullptr})};
  return kEdges[damage.Below(kEdges.size())];
}

// Of the object or one inside it, one field is replaced, or taken away.
void DamageField(Json& object, Damage& damage) {
  if (object.empty()) return;
  auto field = object.begin();
  std::advance(field, damage.Below(object.size()));
  if (field->is_object() && damage.Below(4) != 0) return DamageField(*field, damage);
  if (damage.Below(8) == 0) {
    object.erase(field);
  } else {
    *field = Edge(damage);
  }
}

std::int64_t CheckSizes(const Module& module) {
  std::int64_t count = 0;
  for (const Parameter& parameter : module.parameters()) {
    EXPECT_GE(parameter.spec.num_bytes(), 0);  // throws where they are not to be counted
    ++count;
  }
  for (const auto& [name, child] : module.children()) count += CheckSizes(*child);
  return count;
}

// True: there is a tree.
bool BuildsOrRefuses(const Json& config, const ParallelConfig& parallel) {
  try {
    EXPECT_GT(CheckSizes(*ModelRegistry::Builtin().Build(ModelConfig::Parse(config.dump()), parallel)), 0);
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported)
        << error.what() << "\n"
        << config.dump();
    return false;
  }
}

Json ConfigOf(const std::string& architecture) {
  // What only this one reads in this way; its own defaults go by the type.
  static const std::map<std::string, Json> kOwn = {
      {"DeepseekV2ForCausalLM", {{"model_type", "deepseek_v2"}, {"topk_method", "group_limited_greedy"}}},
      {"DeepseekV3ForCausalLM", {{"model_type", "deepseek_v3"}}},
      {"Gemma3ForCausalLM", {{"model_type", "gemma3_text"}}},
      {"GptOssForCausalLM", {{"model_type", "gpt_oss"}}},
      {"Mamba2ForCausalLM", {{"model_type", "mamba2"}}},
      {"NemotronHForCausalLM", {{"model_type", "nemotron_h"}}},
      {"Phi3ForCausalLM", {{"model_type", "phi3"}}},
      {"Qwen3NextForCausalLM", {{"model_type", "qwen3_next"}, {"full_attention_interval", 2}}},
      {"Qwen3_5ForCausalLM", {{"full_attention_interval", 2}}},
      {"Qwen3_5MoeForCausalLM", {{"full_attention_interval", 2}}}};
  Json config = Json::parse(kFields);
  config["architectures"] = {architecture};
  if (const auto own = kOwn.find(architecture); own != kOwn.end()) config.update(own->second);
  return config;
}

TEST(ConfigFuzz, EveryFieldOfEveryFamilyOfAnotherKind) {
  for (const std::string& architecture : ModelRegistry::Builtin().architectures()) {
    const Json whole = ConfigOf(architecture);
    for (const auto& [field, _] : whole.items()) {
      for (const Json& value : {Json("x"), Json(-1)}) {
        Json config = whole;
        config[field] = value;
        BuildsOrRefuses(config, {});
      }
    }
  }
}

TEST(ConfigFuzz, DamagedConfigurationsOfEveryFamily) {
  Damage damage(8, " ");
  int trees = 0;
  const std::vector<std::string> architectures = ModelRegistry::Builtin().architectures();
  for (const std::string& architecture : architectures) {
    EXPECT_TRUE(BuildsOrRefuses(ConfigOf(architecture), {})) << architecture;
  }
  for (std::size_t round = 0; round < FuzzInputs(3000); ++round) {
    Json config = ConfigOf(architectures[round % architectures.size()]);
    if (damage.Below(2) == 0) {
      config["quantization_config"] = Json::parse(kQuantizations[damage.Below(std::size(kQuantizations))]);
    }
    for (std::size_t edits = damage.Below(4); edits > 0; --edits) DamageField(config, damage);
    const int ranks = 1 + static_cast<int>(damage.Below(3));
    trees += BuildsOrRefuses(config, {.tp_rank = ranks - 1, .tp_size = ranks}) ? 1 : 0;
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(trees, 500);  // else little but the reading was tried
}

TEST(RulesFuzz, DamagedWeightRulesAreReadOrRefused) {
  const std::string rules =
      R"rules({"transforms": [{"suffix": "qkv.weight", "reshape": {"shape": [8, -1, 64]}}, {"segments": "w", "transpose": {}},
        {"suffix": "qkv.weight", "split": {"axis": 1, "into": [{"to": "q.weight", "size": 32}, {"to": "k.weight", "size": 8}]}},
        {"prefix": "e", "deinterleave": {"axis": 0, "into": ["gate", "up"]}}],
        "names": [{"prefix": "policy", "to": ""}, {"regex": "^h\\.(\\d+)", "to": "l"}]})rules";
  const auto take = [](const std::string& input) -> std::string {
    try {
      WeightRules::Parse(input);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      return error.what();
    }
  };
  EXPECT_GT(Fuzz({"weight_rules", {rules}, "{}[],:\"0123456789-.^$()\\ \0\xfftfn", take}, 10'000).accepted, 10U);
}

}  // namespace
}  // namespace layercast
