// What an engine answers to a reload, and how long it is waited for.
#pragma once

#include <chrono>
#include <string>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// Beyond the engine's own deadline: so that it is the engine that says what it waited for.
inline constexpr std::chrono::milliseconds kEngineGrace{2'000};

// Throws Json::exception naming the field that is missing or of another type.
EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json);

}  // namespace layercast
