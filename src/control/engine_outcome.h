// Reads an engine's answer to a reload, and says how much of a caller's time the engine itself may take. Used by the
// controller.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// An engine gives up at most this much earlier than its caller, so that it gets to say what it waited for.
inline constexpr std::chrono::milliseconds kEngineGrace{2'000};
// How long an engine may take if its caller waits for `timeout`.
constexpr std::chrono::milliseconds EngineTime(std::chrono::milliseconds timeout) {
  return timeout - std::min(timeout / 4, kEngineGrace);
}

// Throws Json::exception, naming the field, if one is missing or has the wrong type.
EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json);

}  // namespace layercast
