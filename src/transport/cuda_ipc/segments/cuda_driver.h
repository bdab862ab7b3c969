// CUDA's implementation of IpcDriver: VMM by the CUDA driver, all else by the CUDA runtime.
#pragma once

#include <memory>

#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// Does not touch the device before it is asked for something, and so does not throw yet if there is none.
std::shared_ptr<IpcDriver> MakeCudaDriver(int device);

}  // namespace layercast::cuda_ipc_channel
