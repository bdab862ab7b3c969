// Engines that take a version together: all of them commit it, or none. Each stages it, then stands with it between two
// forward steps, and commits once all of them do; one that cannot is enough that none does. Used by the controller.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// `params` of `reload_weights`; `expected`: the version that all must have staged, where it is known. One outcome for
// each engine: of one that had no fault of its own, the error is kCancelled and names the fault of another.
std::vector<EngineOutcome> ReloadTogether(const std::vector<std::string>& endpoints, const Json& params,
                                          const std::optional<Version>& expected, std::chrono::milliseconds timeout);

}  // namespace layercast
