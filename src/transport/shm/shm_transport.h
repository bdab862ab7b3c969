// The transport between processes of one host, in CPU memory: receivers map the publisher's arena, and nothing is
// copied. FORMAT.md has the messages.
#pragma once

#include <memory>

#include "src/transport/channel/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeShmTransport();

}  // namespace layercast
