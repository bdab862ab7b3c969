// Notices a channel that became slow. Data that comes slowly is still right, so nobody would notice otherwise.
#pragma once

#include <optional>
#include <string>

#include "src/session/fetch/fetch.h"

namespace layercast {

// A sentence with both rates and the likely cause, if a session of some size (kWorthJudging) moved at less than a
// quarter of the rate that the channel had when it was chosen; otherwise nullopt.
std::optional<std::string> SlowChannelWarning(const FetchStats& stats, PublishMode mode);

}  // namespace layercast
