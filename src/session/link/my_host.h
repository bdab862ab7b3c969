// This host, as the handshake carries it: each end says where it is, so that both know which channels can reach it.
#pragma once

#include "src/wire/frames.h"

namespace layercast {

wire::Host MyHost();

}  // namespace layercast
