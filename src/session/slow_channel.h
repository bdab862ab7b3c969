// Tells a channel that became slow: data that crawls is right all the same, and nobody would look.
#pragma once

#include <optional>
#include <string>

#include "src/session/fetch.h"

namespace layercast {

// A sentence with both rates and the likely cause, where a session of some size (kWorthJudging) moved at less than a
// quarter of what the channel did when it was chosen; else nullopt.
std::optional<std::string> SlowChannelWarning(const FetchStats& stats, PublishMode mode);

}  // namespace layercast
