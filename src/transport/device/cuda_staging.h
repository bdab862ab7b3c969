// The device of the nccl channel, by CUDA's runtime.
#pragma once

#include <memory>

#include "src/transport/device/staging.h"

namespace layercast {

// The calling thread's device at this moment. Throws kUnsupported.
int CurrentCudaDevice();
// Throws nothing yet where there is no such device, but kUnsupported as it is used.
std::shared_ptr<StagingDevice> MakeCudaStaging(int device);

}  // namespace layercast
