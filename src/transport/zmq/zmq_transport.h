// The transport that sends chunks as ZeroMQ messages over TCP: it works wherever the control link does. FORMAT.md has
// the messages.
#pragma once

#include <memory>

#include "src/transport/channel/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeZmqTransport();

}  // namespace layercast
