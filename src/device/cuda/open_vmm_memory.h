// Device memory that can sleep (vmm_memory.h), for those who build without CUDA too.
#pragma once

#include <memory>

#include "src/base/memory/sleepable_memory.h"

namespace layercast {

// Opens such memory on a device. Throws kUnsupported, saying why, if there is no such device, it has no virtual memory
// management, or this build has no CUDA.
std::unique_ptr<SleepableMemory> OpenVmmMemory(int device);

}  // namespace layercast
