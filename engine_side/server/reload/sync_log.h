// The one line that a reload of an engine, all its ranks together, leaves in the log. The publisher's log has one of
// each rank with the same "session" (src/session/link/session_name.h). Used by the reloader.
#pragma once

#include <chrono>
#include <string>

#include "layercast/error.h"
#include "src/control/json_forms.h"

namespace layercast {

// `outcome` and `params` are those of `reload_weights`.
void LogSync(const Json& outcome, const Json& params, const std::string& session,
             std::chrono::steady_clock::duration took);
// Of an adapter that was loaded by itself; both are those of `load_adapter`.
void LogAdapterSync(const Json& outcome, const Json& params, std::chrono::steady_clock::duration took);
// Of one that left what was served as it was, or the engine torn.
void LogFailedSync(const Error& why, const Json& params, const std::string& session,
                   std::chrono::steady_clock::duration took);

}  // namespace layercast
