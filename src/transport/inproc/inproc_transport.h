// Within one process: receivers get views of the publisher's own memory. The reference that the others are compared to.
#pragma once

#include <memory>

#include "src/transport/channel.h"

namespace layercast {

std::unique_ptr<Transport> MakeInprocTransport();

}  // namespace layercast
