// The device that channels between GPUs (nccl, cuda_ipc) work on, implemented by CUDA's runtime.
#pragma once

#include <memory>

#include "src/device/channel_device.h"

namespace layercast {

// The calling thread's current device. Throws kUnsupported.
int CurrentCudaDevice();
// Does not look at the device yet: if there is no such device, its functions throw kUnsupported.
std::shared_ptr<ChannelDevice> MakeCudaChannelDevice(int device);

}  // namespace layercast
