// Measures every data channel between this host and a publisher. Used by `layercast probe`, not by receivers.
#pragma once

#include <string>
#include <vector>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/session/choose/channel_chooser.h"

namespace layercast {

struct PublisherProbe {
  std::string publisher;  // its name
  bool same_host = false;
  std::vector<ChannelTrial> trials;  // the preferred one first
};

// Opens a session on the publisher's newest version, measures, and closes it. Throws what FetchSession::Open throws. A
// channel that fails while the publisher is there is part of the answer.
PublisherProbe ProbePublisher(const std::string& endpoint, const Keys& keys, Deadline deadline);

}  // namespace layercast
