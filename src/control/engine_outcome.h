// Reads an engine's answer to a reload. Used by the controller.
#pragma once

#include <string>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// Throws Json::exception, naming the field, if one is missing or has the wrong type.
EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json);

}  // namespace layercast
