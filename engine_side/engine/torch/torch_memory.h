// Memory that torch allocates on a device, for the weights of an engine that computes there. Torch-free header.
#pragma once

#include <memory>

#include "layercast/memory.h"

namespace layercast {

// Opens torch's memory on `device`. What it allocates is zero. A resource for one thread. Throws kUnsupported if there
// is no such device.
std::unique_ptr<MemoryResource> OpenTorchMemory(const Device& device);

}  // namespace layercast
