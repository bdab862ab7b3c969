// What travels with an adapter beside its factors: its configuration, and the version of the base that it was trained
// on. The text is a tensor of the version, so that the digest covers it, and stands in the version's configuration, so
// that engines read it before any byte moves: {..., "adapters": {NAME: TEXT}}.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/adapter_config.h"
#include "layercast/version.h"

namespace layercast {

// Value.
struct AdapterText {
  AdapterConfig config;
  std::optional<Version> base{};

  // {"base": {"lineage", "step", "digest"} or null, "config": AdapterConfig::Canonical}
  std::string ToText() const;
  // Throws kInvalidArgument if it is not what ToText makes, and what AdapterConfig::FromJson throws.
  static AdapterText FromText(const std::string& text);
};

// The configuration of a model, or an empty text, with what is said of adapters, by name.
std::string WithAdapterTexts(const std::string& config, const std::map<std::string, std::string>& texts);
// The texts of a version's adapters, by name. Empty for a configuration that says nothing of adapters.
std::map<std::string, std::string> AdapterTexts(std::string_view config);

// Throws kInvalidArgument, naming it, for a name that is none (CheckName), or that has what means something in a
// version or a list: a slash, a comma, an asterisk or a blank.
void CheckAdapterName(const std::string& name);

}  // namespace layercast
