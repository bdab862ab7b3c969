// The transport that sends chunks as ZeroMQ messages over TCP: it works wherever the control link does. FORMAT.md has
// the messages.
#pragma once

#include <memory>

#include "src/net/keys/keys.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// With keys, its connections are authenticated and encrypted as the control link is.
std::unique_ptr<Transport> MakeZmqTransport(const Keys& keys = {});

}  // namespace layercast
