// Chunks as active messages of UCX: over shared memory, TCP, or what else UCX finds. FORMAT.md has the messages.
#pragma once

#include <memory>

#include "src/transport/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeUcxTransport();

}  // namespace layercast
