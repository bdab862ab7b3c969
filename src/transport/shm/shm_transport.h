// Same host, CPU memory: the publisher's arena is mapped by receivers, and nothing is copied. FORMAT.md has the
// messages.
#pragma once

#include <memory>

#include "src/transport/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeShmTransport();

}  // namespace layercast
