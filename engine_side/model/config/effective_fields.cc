#include "engine_side/model/config/effective_fields.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "engine_side/model/config/config_rope.h"

namespace layercast {
namespace {

using Json = nlohmann::json;

// Activations that have two names, as transformers and engines compute them.
std::string UsualName(const std::string& hidden_act) {
  if (hidden_act == "swish") return "silu";
  if (hidden_act == "gelu_new") return "gelu_pytorch_tanh";
  return hidden_act;
}

Json OrNull(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

void AddRope(const RopeConfig& rope, const std::string& of_type, EffectiveFields& fields) {
  const auto& [rope_type, theta, numbers, lists] = rope;
  fields["rope_type" + of_type] = rope_type;
  fields["rope_theta" + of_type] = theta;
  for (const auto& [name, number] : numbers) fields["rope_parameters." + name + of_type] = number;
  for (const auto& [name, list] : lists) fields["rope_parameters." + name + of_type] = list;
}

// The rope of layers with a sliding window has fields of its own only if it is another than the model's.
void AddRopes(const ModelConfig& config, EffectiveFields& fields) {
  const RopeConfig rope = EffectiveRope(config.rope, config.max_position_embeddings);
  AddRope(rope, "", fields);
  const auto sliding = config.ropes.find(kSlidingAttention);
  if (sliding == config.ropes.end() || std::ranges::count(config.layer_types, kSlidingAttention) == 0) return;
  const RopeConfig of_sliding = EffectiveRope(sliding->second, config.max_position_embeddings);
  if (of_sliding != rope) AddRope(of_sliding, std::string(" of ") + kSlidingAttention, fields);
}

}  // namespace

// The structured binding names every member, so that a new one does not compile before it was decided here.
void AddFields(const ModelConfig& config, EffectiveFields& fields) {
  const auto& [architectures, model_type, dtype, vocab_size, hidden_size, intermediate_size, num_hidden_layers,
               num_attention_heads, num_key_value_heads, head_dim, max_position_embeddings, rms_norm_eps, hidden_act,
               tie_word_embeddings, attention_bias, mlp_bias, qkv_bias, use_qk_norm, rope, ropes, sliding_window,
               layer_types, query_pre_attn_scalar, attn_logit_softcapping, final_logit_softcapping, eos_token_ids, json,
               on_field] = config;
  // Left out: the architectures, which ServedConfig compares, and the model type, of which nothing but defaults comes;
  // the dtype of saving; how long a sequence may be and where it ends, which a reload does not change.
  fields["vocab_size"] = vocab_size;
  fields["hidden_size"] = hidden_size;
  fields["intermediate_size"] = intermediate_size;
  fields["num_hidden_layers"] = num_hidden_layers;
  fields["num_attention_heads"] = num_attention_heads;
  fields["num_key_value_heads"] = num_key_value_heads;
  fields["head_dim"] = head_dim;
  fields["rms_norm_eps"] = rms_norm_eps;
  fields["hidden_act"] = UsualName(hidden_act);
  fields["tie_word_embeddings"] = tie_word_embeddings;
  fields["attention_bias"] = attention_bias;
  fields["mlp_bias"] = mlp_bias;
  fields["qkv_bias"] = qkv_bias;
  fields["use_qk_norm"] = use_qk_norm;
  fields["layer_types"] = layer_types;
  if (std::ranges::count(layer_types, kSlidingAttention) > 0) fields["sliding_window"] = sliding_window.value_or(0);
  fields["query_pre_attn_scalar"] = OrNull(query_pre_attn_scalar);
  fields["attn_logit_softcapping"] = OrNull(attn_logit_softcapping);
  fields["final_logit_softcapping"] = OrNull(final_logit_softcapping);
  AddRopes(config, fields);
}

void NoteFields(const MoeConfig& moe, const ModelConfig& config) {
  if (!config.on_field) return;
  const auto& [num_experts, num_experts_per_tok, intermediate_size, shared_intermediate_size, size_field,
               shared_size_field, latent_size, norm_topk_prob, routed_scaling_factor, n_group, topk_group,
               sparse_layers, num_draft_layers] = moe;
  // Left out: what errors call the sizes, and draft layers, which are skipped unless a draft model is served: then it
  // has them, or lacks tensors.
  const auto own = static_cast<std::ptrdiff_t>(sparse_layers.size()) - num_draft_layers;
  const std::vector<bool> sparse(sparse_layers.begin(), sparse_layers.begin() + own);
  const auto note = [&](const char* name, const Json& value) { config.on_field(name, value.dump()); };
  note("num_experts", num_experts);
  note("num_experts_per_tok", num_experts_per_tok);
  note("moe_intermediate_size", intermediate_size);
  note("shared_expert_intermediate_size", shared_intermediate_size);
  note("moe_latent_size", latent_size);
  note("norm_topk_prob", norm_topk_prob);
  note("routed_scaling_factor", routed_scaling_factor);
  note("n_group", n_group);
  note("topk_group", topk_group);
  note("layers with experts", sparse);
}

}  // namespace layercast
