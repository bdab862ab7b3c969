// Draft layers (MTP), which checkpoints hold behind a decoder's last layer. Used by families whose checkpoints do.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "layercast/model/config.h"
#include "layercast/model/moe_config.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

inline WeightsMapper DropDraftLayers(const ModelConfig& config, const MoeConfig& moe) {
  std::vector<NameRule> rules;
  for (std::int64_t i = 0; i < moe.num_draft_layers; ++i) {
    rules.push_back(NameRule::Drop(NameRule::Match::kPrefix,
                                   "model.layers." + std::to_string(config.num_hidden_layers + i),
                                   "a draft layer (MTP) is not served"));
  }
  return WeightsMapper(std::move(rules));
}

}  // namespace layercast
