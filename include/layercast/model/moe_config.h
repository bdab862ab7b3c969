// The fields of a config.json that describe a mixture of experts, under every name that families have for them. Used by
// the families that have one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/config.h"

namespace layercast {

// Value.
struct LAYERCAST_PUBLIC MoeConfig {
  // Throws kInvalidArgument, naming the field, for one that is missing or cannot be. What is left out is what
  // transformers takes for that `model_type`.
  static MoeConfig Parse(const ModelConfig& config);

  std::int64_t num_experts = 0;  // num_experts, n_routed_experts or num_local_experts
  std::int64_t num_experts_per_tok = 0;
  std::int64_t intermediate_size = 0;  // of one: moe_intermediate_size, or else intermediate_size
  // shared_expert_intermediate_size or moe_shared_expert_intermediate_size, or that of n_shared_experts; 0: none.
  std::int64_t shared_intermediate_size = 0;
  // What errors call the two.
  std::string size_field = "intermediate_size", shared_size_field = "shared_expert_intermediate_size";
  std::int64_t latent_size = 0;  // moe_latent_size: of what experts take and give; 0: the hidden size
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;
  std::int64_t n_group = 1, topk_group = 1;
  // Which layers have experts: all but mlp_only_layers and the first first_k_dense_replace, of the rest every
  // decoder_sparse_step-th, counted from one, and every moe_layer_freq-th, counted from zero. Draft layers follow.
  std::vector<bool> sparse_layers;
  std::int64_t num_draft_layers = 0;  // behind the last one, for another model: num_nextn_predict_layers
};

}  // namespace layercast
