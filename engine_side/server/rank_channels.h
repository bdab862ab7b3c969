// The data channels that the ranks of an engine took for one reload, as one entry of its report.
#pragma once

#include <string>
#include <vector>

#include "src/control/json_forms.h"

namespace layercast {

// Of the ranks' reports. Where all took the same one, the slowest rank's entry, with the warnings of all. Where they
// did not, it names every channel, has the slowest rank's rate, and says in "ranks" what each of them took. Ranks that
// failed before they took one say nothing of it.
Json MergeChannels(const std::vector<Json>& reports);

// Adds it to "shm, zmq", unless it is there.
void AddChannelName(std::string& names, const std::string& name);

// Whether the entry is of a data channel, and not of files or of numbers made here.
bool IsDataChannel(const Json& channel);

}  // namespace layercast
