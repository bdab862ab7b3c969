// Merges the data channels that the ranks of an engine took for one reload into one entry of the reload's report.
#pragma once

#include <string>
#include <vector>

#include "src/control/json_forms.h"

namespace layercast {

// Merges the channel entries of the ranks' reports. If all ranks took the same channel, the result is the slowest
// rank's entry with the warnings of all. Otherwise it names every channel, has the slowest rank's rate, and lists under
// "ranks" what each rank took. Ranks that failed before they took a channel are left out.
Json MergeChannels(const std::vector<Json>& reports);

// Adds `name` to a list such as "shm, zmq", unless it is in there.
void AddChannelName(std::string& names, const std::string& name);

// Whether the entry is about a data channel, and not about files or random weights.
bool IsDataChannel(const Json& channel);

}  // namespace layercast
