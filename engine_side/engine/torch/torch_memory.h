// Memory on a device for an engine that computes there: for its weights, and for its caches. Torch-free header.
#pragma once

#include <memory>

#include "layercast/memory.h"
#include "src/base/memory/sleepable_memory.h"

namespace layercast {

// Opens memory on `device`. What it allocates is zero. On a GPU without virtual memory management it is torch's, which
// cannot sleep (Sleep throws kUnsupported); so is that of other devices. A resource for one thread. Throws kUnsupported
// if there is no such device.
std::unique_ptr<SleepableMemory> OpenTorchMemory(const Device& device);

}  // namespace layercast
