// The device that channels between GPUs work on (nccl, cuda_ipc), by CUDA's runtime.
#pragma once

#include <memory>

#include "src/transport/device/channel_device.h"

namespace layercast {

// The calling thread's device at this moment. Throws kUnsupported.
int CurrentCudaDevice();
// Throws nothing yet where there is no such device, but kUnsupported as it is used.
std::shared_ptr<ChannelDevice> MakeCudaChannelDevice(int device);

}  // namespace layercast
