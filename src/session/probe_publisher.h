// Measures every data channel between this host and a publisher: for people who look, not for receivers.
#pragma once

#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/session/channel_chooser.h"

namespace layercast {

struct PublisherProbe {
  std::string publisher;  // its name
  bool same_host = false;
  std::vector<ChannelTrial> trials;  // the one to prefer first
};

// Opens a session on its newest version, and closes it. Throws what FetchSession::Open throws; a channel that fails is
// a part of the answer.
PublisherProbe ProbePublisher(const std::string& endpoint, Deadline deadline);

}  // namespace layercast
