// Reads an engine's answer to a reload, and says how much longer than the engine itself a caller waits for it. Used by
// the controller.
#pragma once

#include <chrono>
#include <string>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// A caller waits this much longer than the engine's own deadline, so that the engine gets to say what it waited for.
inline constexpr std::chrono::milliseconds kEngineGrace{2'000};

// Throws Json::exception, naming the field, if one is missing or has the wrong type.
EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json);

}  // namespace layercast
