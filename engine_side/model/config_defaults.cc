#include "engine_side/model/config_defaults.h"

#include <map>

#include "engine_side/model/config_fields.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

Json Gemma(Json fields) {
  Json gemma = {{"head_dim", 256},
                {"hidden_activation", "gelu_pytorch_tanh"},
                {"tie_word_embeddings", true},
                {"query_pre_attn_scalar", 256},
                {"use_sliding_window", true},
                {"sliding_window", 4096}};
  gemma.update(fields);
  return gemma;
}

Json Deepseek(Json fields) {
  Json deepseek = {{"q_lora_rank", 1536},
                   {"kv_lora_rank", 512},
                   {"qk_nope_head_dim", 128},
                   {"qk_rope_head_dim", 64},
                   {"v_head_dim", 128}};
  deepseek.update(fields);
  return deepseek;
}

Json QwenHybrid(Json fields) {
  Json hybrid = {{"head_dim", 256},
                 {"partial_rotary_factor", 0.25},
                 {"full_attention_interval", 4},
                 {"max_position_embeddings", 32768}};
  hybrid.update(fields);
  return hybrid;
}

Json QwenHybridMoe(Json fields) {
  Json moe = QwenHybrid({{"num_key_value_heads", 2},
                         {"moe_intermediate_size", 512},
                         {"shared_expert_intermediate_size", 512},
                         {"norm_topk_prob", true}});
  moe.update(fields);
  return moe;
}

// One block a layer: listed, or as a pattern such as "M-M*"; the number of layers follows from it.
void UseUsualNamesOfNemotronH(Json& config) {
  const std::map<char, std::string> of_pattern = {
      {'M', "linear_attention"}, {'*', "full_attention"}, {'-', "mlp"}, {'E', "moe"}};
  const std::map<std::string, std::string> old_names = {{"mamba", "linear_attention"}, {"attention", "full_attention"}};
  Json types = Json::array();
  if (config.contains("layers_block_type") && config["layers_block_type"].is_array()) {
    for (const Json& type : config["layers_block_type"]) {
      const auto old_name = type.is_string() ? old_names.find(type.get<std::string>()) : old_names.end();
      types.push_back(old_name == old_names.end() ? type : Json(old_name->second));
    }
  } else if (config.contains("hybrid_override_pattern") && config["hybrid_override_pattern"].is_string()) {
    for (const char block : config["hybrid_override_pattern"].get<std::string>()) {
      const auto type = of_pattern.find(block);
      types.push_back(type == of_pattern.end() ? std::string(1, block) : type->second);
    }
  }
  if (types.empty()) return;
  config["num_hidden_layers"] = types.size();
  config["layer_types"] = std::move(types);
  if (config.contains("mlp_hidden_act")) config["hidden_act"] = config["mlp_hidden_act"];
}

// Published files say how many elements of a head are rotated.
void UseUsualNamesOfMiniMaxM2(Json& config) {
  if (!config.contains("rotary_dim") || !config["rotary_dim"].is_number()) return;
  Json whole = config;
  AddConfigDefaults("minimax_m2", whole);
  if (!whole["head_dim"].is_number()) return;
  config.emplace("partial_rotary_factor", config["rotary_dim"].get<double>() / whole["head_dim"].get<double>());
}

}  // namespace

void AddConfigDefaults(const std::string& model_type, Json& config) {
  const Json gemma3 = Gemma({{"sliding_window_pattern", 6}, {"rope_theta", 1e6}, {"rope_local_base_freq", 1e4}});
  const std::map<std::string, Json> defaults = {
      {"qwen3", {{"head_dim", 128}}},
      {"mistral", {{"num_key_value_heads", 8}, {"use_sliding_window", true}, {"sliding_window", 4096}}},
      {"phi3", {{"use_sliding_window", true}, {"rms_norm_eps", 1e-5}, {"original_max_position_embeddings", 4096}}},
      {"gemma2",
       Gemma({{"sliding_window_pattern", 2}, {"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}})},
      {"deepseek_v2", Deepseek({{"num_local_experts", 64}, {"moe_intermediate_size", 1407}, {"n_shared_experts", 2}})},
      {"deepseek_v3", Deepseek({{"num_local_experts", 256},
                                {"num_experts_per_tok", 8},
                                {"moe_intermediate_size", 2048},
                                {"n_shared_experts", 1},
                                {"n_group", 8},
                                {"topk_group", 4},
                                {"norm_topk_prob", true},
                                {"routed_scaling_factor", 2.5},
                                {"first_k_dense_replace", 3},
                                {"num_mtp_layers", 1},
                                {"max_position_embeddings", 4096}})},
      {"mamba2", {{"layer_norm_epsilon", 1e-5}, {"max_position_embeddings", 1 << 20}}},  // it knows no limit
      {"nemotron_h",
       {{"num_key_value_heads", 8},
        {"head_dim", 128},
        {"layer_norm_epsilon", 1e-5},
        {"hidden_act", "relu2"},
        {"max_position_embeddings", 4096}}},
      {"gemma3", gemma3},
      {"gemma3_text", gemma3},
      {"mixtral",
       {{"num_key_value_heads", 8},
        {"rms_norm_eps", 1e-5},
        {"rope_theta", 1e6},
        {"use_sliding_window", true},
        {"num_local_experts", 8},
        {"num_experts_per_tok", 2}}},
      {"qwen2_moe",
       {{"num_key_value_heads", 16},
        {"num_local_experts", 60},
        {"num_experts_per_tok", 4},
        {"moe_intermediate_size", 1408},
        {"shared_expert_intermediate_size", 5632}}},
      {"qwen3_moe",
       {{"num_key_value_heads", 4},
        {"num_local_experts", 128},
        {"num_experts_per_tok", 8},
        {"moe_intermediate_size", 768}}},
      {"minimax_m2",
       {{"num_key_value_heads", 8},
        {"head_dim", 128},
        {"rope_theta", 5e6},
        {"max_position_embeddings", 196608},
        {"num_local_experts", 256},
        {"num_experts_per_tok", 8}}},
      {"gpt_oss",
       {{"num_key_value_heads", 8},
        {"head_dim", 64},
        {"rms_norm_eps", 1e-5},
        {"attention_bias", true},
        {"use_sliding_window", true},
        {"sliding_window", 128},
        {"sliding_window_pattern", 2},
        {"max_position_embeddings", 131072},
        {"rope_theta", 150000.0},
        {"rope_scaling",
         {{"rope_type", "yarn"},
          {"factor", 32.0},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"truncate", false},
          {"original_max_position_embeddings", 4096}}},
        {"num_local_experts", 128},
        {"num_experts_per_tok", 4}}},
      {"qwen3_next", QwenHybridMoe({{"num_local_experts", 512}, {"num_experts_per_tok", 10}})},
      {"qwen3_5_text", QwenHybrid({{"num_key_value_heads", 4}})},
      {"qwen3_5_moe_text", QwenHybridMoe({{"num_local_experts", 256}, {"num_experts_per_tok", 8}})},
      {"glm4_moe",
       {{"num_key_value_heads", 8},
        {"rms_norm_eps", 1e-5},
        {"partial_rotary_factor", 0.5},
        {"num_local_experts", 128},
        {"num_experts_per_tok", 8},
        {"moe_intermediate_size", 1408},
        {"n_shared_experts", 1},
        {"norm_topk_prob", true},
        {"first_k_dense_replace", 1},
        {"num_mtp_layers", 1}}}};
  const auto found = defaults.find(model_type);
  if (found == defaults.end()) return;
  for (const auto& [key, value] : found->second.items()) config.emplace(key, value);
}

Json WithUsualNames(Json config) {
  if (!config.is_object()) return config;
  const std::string model_type = ConfigFields(config, {}).Text("model_type", "");
  if (model_type == "nemotron_h") UseUsualNamesOfNemotronH(config);
  if (model_type == "minimax_m2") UseUsualNamesOfMiniMaxM2(config);
  return config;
}

bool IsAttentionFree(const std::string& model_type) { return model_type == "mamba2"; }

Json TextFields(const Json& config) {
  Json fields = config.at("text_config");
  for (const char* outer : {"architectures", "model_type", "dtype", "torch_dtype", "tie_word_embeddings",
                            "bos_token_id", "eos_token_id", "quantization_config"}) {
    const bool named = std::string(outer) == "architectures" && config.contains(outer);
    if (config.contains(outer) && (named || !fields.contains(outer))) fields[outer] = config[outer];
  }
  return fields;
}

}  // namespace layercast
