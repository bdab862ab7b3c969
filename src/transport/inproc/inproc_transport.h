// The transport within one process: receivers get views of the publisher's own memory. It is the reference for all
// others.
#pragma once

#include <memory>

#include "src/transport/channel/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeInprocTransport();

}  // namespace layercast
