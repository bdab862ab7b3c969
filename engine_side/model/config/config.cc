#include "layercast/model/config.h"

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/config_rope.h"

namespace layercast {

std::int64_t ModelConfig::WindowOf(std::int64_t layer) const {
  const std::string& type = layer_types.at(static_cast<std::size_t>(layer));
  if (type == kFullAttention) return 0;
  if (type == kSlidingAttention) return sliding_window.value_or(0);
  ConfigFields::Refuse("layer_types: expected full_attention or sliding_attention of layer " + std::to_string(layer) +
                       ", got \"" + type + "\"");
}

const RopeConfig& ModelConfig::RopeOf(std::int64_t layer) const {
  if (ropes.empty()) return rope;
  const std::string& type = layer_types.at(static_cast<std::size_t>(layer));
  if (const auto found = ropes.find(type); found != ropes.end()) return found->second;
  ConfigFields::Refuse("rope_parameters has none for \"" + type + "\", which layer " + std::to_string(layer) + " is");
}

}  // namespace layercast
