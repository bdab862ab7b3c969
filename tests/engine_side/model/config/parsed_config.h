// A config.json of a few fields more than the least, read: what comes of it, or why it is refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "layercast/error.h"
#include "layercast/model/config.h"
#include "tests/engine_side/model/config/minimal_config.h"
#include "tests/support/error_of.h"

namespace layercast::testing {

inline ModelConfig ParseConfig(const nlohmann::json& fields) { return ModelConfig::Parse(ConfigWith(fields).dump()); }

inline std::string ConfigError(const nlohmann::json& fields) {
  return ErrorOf([&] { (void)ParseConfig(fields); }, ErrorCode::kInvalidArgument);
}

}  // namespace layercast::testing
