// The fields of a configuration that change what is computed, each with its effective value: defaults filled in, and
// one name for all spellings. Two configurations with equal fields are of one model. Used by ServedConfig.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "layercast/model/config.h"

namespace layercast {

using EffectiveFields = std::map<std::string, nlohmann::json>;  // by name; what a configuration does not have is absent

// Adds the fields that ModelConfig parses for all families.
void AddFields(const ModelConfig& config, EffectiveFields& fields);

// Hands the fields that MoeConfig parses to `config.on_field`. Those that a family reads by ConfigFields::Of are handed
// over there.
void NoteFields(const MoeConfig& moe, const ModelConfig& config);

}  // namespace layercast
