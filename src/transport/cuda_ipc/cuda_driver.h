// The driver of the cuda_ipc channel, by CUDA: VMM of the driver, the rest by the runtime.
#pragma once

#include <memory>

#include "src/transport/cuda_ipc/driver.h"

namespace layercast::cuda_ipc_channel {

// Touches the device when it is asked for something, not before. Throws nothing yet where there is none.
std::shared_ptr<IpcDriver> MakeCudaDriver(int device);

}  // namespace layercast::cuda_ipc_channel
