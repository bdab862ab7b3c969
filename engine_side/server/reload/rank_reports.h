// What the ranks of an engine report of a reload, put together. A rank that failed or died has a report too. Used by
// the reload over them.
#pragma once

#include <vector>

#include "src/control/json_forms.h"

namespace layercast {

// A rank's report of a version that it staged, updated by a later report of the same version. A process that was
// started in between has the staged bytes but does not know how they came; what the earlier process reported of that is
// kept.
Json WithLater(const Json& staged, const Json& later);

// Whether the report's entry is about a data channel, and not about files or random weights.
bool IsDataChannel(const Json& channel);

// Merges the ranks' reports into one: sums of bytes and layers, the slowest rank's times, and the channels and episodes
// of all ranks.
Json MergeReports(const std::vector<Json>& reports);

}  // namespace layercast
