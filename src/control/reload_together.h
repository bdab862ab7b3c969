// Reloads several engines together: all of them commit the version, or none does. Each engine stages it, then stops
// with it between two forward steps, and commits once all engines have got there. If one cannot, none commits. Used by
// the controller.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "layercast/controller.h"
#include "src/control/engine_clients.h"
#include "src/control/json_forms.h"
#include "src/control/progress_watch.h"
#include "src/trace/reload_trace.h"

namespace layercast {

// `params` are those of the call `reload_weights`. `expected` is the version that all engines must have staged, if it
// is known. `stop` gives up what is not decided yet. Returns one outcome for each engine, in the order of the clients.
// An engine that could have committed, but did not because of another, has the error kCancelled, which names the
// other's fault. `watch` is of these endpoints. `trace` may be null.
std::vector<EngineOutcome> ReloadTogether(EngineClients& clients, const Json& params,
                                          const std::optional<Version>& expected, std::chrono::milliseconds timeout,
                                          std::stop_token stop, ProgressWatch& watch, ReloadTrace* trace = nullptr);

}  // namespace layercast
