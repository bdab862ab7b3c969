// A model's config.json, parsed and checked: what families build trees from and engines compute with. Values.
// Both spellings in use are understood: `torch_dtype`, `rope_theta`, `rope_scaling`, and `dtype`, `rope_parameters`. A
// field that is left out gets the default that transformers has for the `model_type`; if that is left out too or is no
// built-in family's, the default for the family that `architectures` names.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/model_description.h"

namespace layercast {

// Rotary position embedding. What a type needs beyond theta is kept as it was written ("factor", "beta_fast", ...),
// also if the configuration has it outside of its rope fields ("partial_rotary_factor",
// "original_max_position_embeddings").
struct RopeConfig {
  std::string type = "default";  // "linear", "dynamic", "llama3", "yarn", ...
  double theta = 10000.0;
  std::map<std::string, double> numbers;             // booleans are 0 and 1
  std::map<std::string, std::vector<double>> lists;  // "short_factor", ...

  bool operator==(const RopeConfig&) const = default;
};

struct LAYERCAST_PUBLIC ModelConfig {
  // Throws kInvalidArgument, naming field and values, on text that is not such a configuration and on impossible
  // values: sizes below 1, heads that do not divide, ropes that nothing could be rotated by.
  static ModelConfig Parse(const ModelDescription& description);
  static ModelConfig Parse(std::string_view config_json);
  // The architectures alone: which family a model is of is asked before any other field means anything. Throws as Parse
  // does.
  static std::vector<std::string> ArchitecturesOf(const ModelDescription& description);

  // In this attention layer a token sees so many positions, up to and including its own; 0: all. Throws
  // kInvalidArgument for a layer whose type is not attention.
  std::int64_t WindowOf(std::int64_t layer) const;
  // Throws kInvalidArgument if the layer's type has no rope.
  const RopeConfig& RopeOf(std::int64_t layer) const;
  // How many tokens a sequence may have, as engines derive it. If the rope's type is linear or yarn: `factor` times
  // max_position_embeddings, or times yarn's original_max_position_embeddings if there is one. Otherwise, and for
  // Gemma 3, whose files have the factor in the number already: max_position_embeddings.
  std::int64_t ContextLength() const;

  std::vector<std::string> architectures;  // "LlamaForCausalLM"
  std::string model_type;                  // "llama"; if the file has none, that of the built-in family
  DType dtype = DType::kF32;               // of the weights, as a cold load has them: f32, f16 or bf16

  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;                 // of the whole model's heads, never of a rank's
  std::int64_t max_position_embeddings = 0;  // as the field says; ContextLength says how long sequences may be

  double rms_norm_eps = 1e-6;
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool qkv_bias = true;  // Qwen2-MoE's field
  bool use_qk_norm = false;

  RopeConfig rope;
  std::map<std::string, RopeConfig> ropes;     // by type of layer ("sliding_attention"); empty: all layers have `rope`
  std::optional<std::int64_t> sliding_window;  // in tokens; empty: it is switched off
  std::vector<std::string> layer_types;        // per layer: "full_attention", "sliding_attention", ...
  std::optional<double> query_pre_attn_scalar, attn_logit_softcapping, final_logit_softcapping;

  // Of generation_config.json too, if the description was read from a folder that has one.
  std::vector<std::int64_t> eos_token_ids;

  // The whole configuration, defaults added, for families that read fields of their own. If the language model's fields
  // are nested in `text_config`, these are what it holds.
  std::string json;

  // Called, if it is not empty, with each field that a family reads of `json` and the value that it takes, as JSON,
  // while the tree is built: so that the configuration of new weights can be held against the engine's, field by field.
  // The built-in families' fields come by themselves. A host program's family that parses `json` passes on its own.
  std::function<void(std::string_view field, std::string_view value)> on_field{};
};

// The fields of a config.json that describe a mixture of experts, under every name that families have for them. Value.
struct LAYERCAST_PUBLIC MoeConfig {
  // Throws kInvalidArgument, naming the field, if one is missing or has an impossible value. A field that may be left
  // out gets the default that transformers has for the `model_type`.
  static MoeConfig Parse(const ModelConfig& config);

  std::int64_t num_experts = 0;  // num_experts, n_routed_experts or num_local_experts
  std::int64_t num_experts_per_tok = 0;
  std::int64_t intermediate_size = 0;  // of one expert: moe_intermediate_size, or else intermediate_size
  // Of the shared expert: shared_expert_intermediate_size or moe_shared_expert_intermediate_size, or as much as
  // n_shared_experts experts have. 0: there is none.
  std::int64_t shared_intermediate_size = 0;
  // The fields that gave intermediate_size and shared_intermediate_size, for errors.
  std::string size_field = "intermediate_size", shared_size_field = "shared_expert_intermediate_size";
  std::int64_t latent_size = 0;  // moe_latent_size: size of the vectors that experts take and give; 0: hidden_size
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;
  std::int64_t n_group = 1, topk_group = 1;
  // For each layer, whether it has experts. A layer has none if it is in mlp_only_layers or one of the first
  // first_k_dense_replace. Of the rest, those have experts whose number is a multiple of decoder_sparse_step, counted
  // from one, and of moe_layer_freq, counted from zero. The draft layers' entries come last.
  std::vector<bool> sparse_layers;
  std::int64_t num_draft_layers = 0;  // layers behind the last one, for a draft model: num_nextn_predict_layers
};

}  // namespace layercast
