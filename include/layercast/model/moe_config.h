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
