#include "layercast/model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/effective_fields.h"

namespace layercast {
namespace {

constexpr std::int64_t kMostExperts = 65536;
constexpr std::int64_t kMostExpertsInAll = 262144;  // a plan holds names and placements for each

std::int64_t ParseNumExperts(const ConfigFields& fields) {
  for (const char* name : {"num_experts", "n_routed_experts"}) {
    if (fields.Find(name) != nullptr) return fields.Size(name, std::nullopt, kMostExperts);
  }
  return fields.Size("num_local_experts", std::nullopt, kMostExperts);  // the name that the families' defaults use
}

void ParseSizes(const ConfigFields& fields, const ModelConfig& config, MoeConfig& moe) {
  moe.size_field = fields.Find("moe_intermediate_size") != nullptr ? "moe_intermediate_size" : "intermediate_size";
  moe.intermediate_size = fields.Size("moe_intermediate_size", config.intermediate_size);
  for (const char* name : {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"}) {
    const std::optional<std::int64_t> size = fields.Integer(name, 0, 0x7FFFFFFF);
    if (!size) continue;
    moe.shared_size_field = name;
    moe.shared_intermediate_size = *size;
    return;
  }
  moe.shared_size_field = "n_shared_experts * " + moe.size_field;
  moe.shared_intermediate_size =
      fields.Integer("n_shared_experts", 0, kMostExperts).value_or(0) * moe.intermediate_size;
}

// A size of at most `most`, which is the value of `most_name`.
std::int64_t ParseAtMost(const ConfigFields& fields, const char* name, std::optional<std::int64_t> otherwise,
                         const char* most_name, std::int64_t most) {
  const std::int64_t value = fields.Size(name, otherwise);
  if (value <= most) return value;
  ConfigFields::Refuse(std::string(name) + " " + std::to_string(value) + " exceeds " + most_name + " " +
                       std::to_string(most));
}

// `layers` counts the model's own layers, without draft layers.
std::vector<std::int64_t> ParseMlpOnlyLayers(const ConfigFields& fields, std::int64_t layers) {
  std::vector<std::int64_t> mlp_only = fields.Integers("mlp_only_layers");
  for (const std::int64_t layer : mlp_only) {
    if (layer >= 0 && layer < layers) continue;
    fields.Refuse("mlp_only_layers", "layers from 0 to " + std::to_string(layers - 1), *fields.Find("mlp_only_layers"));
  }
  return mlp_only;
}

std::vector<bool> ParseSparseLayers(const ConfigFields& fields, std::int64_t own_layers, std::int64_t draft_layers) {
  const std::int64_t step = fields.Size("decoder_sparse_step", 1);
  const std::int64_t dense = fields.Integer("first_k_dense_replace", 0, kMostLayers).value_or(0);
  const std::int64_t frequency = fields.Size("moe_layer_freq", 1);
  const std::vector<std::int64_t> mlp_only = ParseMlpOnlyLayers(fields, own_layers);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < own_layers + draft_layers; ++i) {
    sparse.push_back(i >= dense && (i + 1) % step == 0 && i % frequency == 0 && std::ranges::count(mlp_only, i) == 0);
  }
  return sparse;
}

std::int64_t ParseDraftLayers(const ConfigFields& fields) {
  const auto first_name = fields.Integer("num_nextn_predict_layers", 0, kMostLayers);
  return first_name ? *first_name : fields.Integer("num_mtp_layers", 0, kMostLayers).value_or(0);
}

}  // namespace

MoeConfig MoeConfig::Parse(const ModelConfig& config) {
  const ConfigFields fields(nlohmann::json::parse(config.json));  // what comes of them is noted below
  MoeConfig moe;
  moe.num_experts = ParseNumExperts(fields);
  moe.num_experts_per_tok =
      ParseAtMost(fields, "num_experts_per_tok", std::nullopt, "the number of experts", moe.num_experts);
  ParseSizes(fields, config, moe);
  if (fields.Find("moe_latent_size") != nullptr) moe.latent_size = fields.Size("moe_latent_size");
  moe.norm_topk_prob = fields.Flag("norm_topk_prob", false);
  moe.routed_scaling_factor = fields.Number("routed_scaling_factor", 1.0);
  moe.n_group = fields.Size("n_group", 1);
  moe.topk_group = ParseAtMost(fields, "topk_group", 1, "n_group", moe.n_group);
  if (moe.num_experts % moe.n_group != 0) {
    ConfigFields::Refuse("the number of experts " + std::to_string(moe.num_experts) + " is not divisible by n_group " +
                         std::to_string(moe.n_group));
  }
  const std::int64_t eligible = moe.num_experts / moe.n_group * moe.topk_group;
  if (moe.num_experts_per_tok > eligible) {
    ConfigFields::Refuse("num_experts_per_tok " + std::to_string(moe.num_experts_per_tok) + " exceeds the " +
                         std::to_string(eligible) + " experts of topk_group " + std::to_string(moe.topk_group));
  }
  moe.num_draft_layers = ParseDraftLayers(fields);
  moe.sparse_layers = ParseSparseLayers(fields, config.num_hidden_layers, moe.num_draft_layers);
  const std::int64_t sparse = std::ranges::count(moe.sparse_layers, true);
  if (sparse * moe.num_experts > kMostExpertsInAll) {
    ConfigFields::Refuse("expected at most " + std::to_string(kMostExpertsInAll) + " experts in all layers, got " +
                         std::to_string(sparse) + " layers of " + std::to_string(moe.num_experts));
  }
  NoteFields(moe, config);
  return moe;
}

}  // namespace layercast
