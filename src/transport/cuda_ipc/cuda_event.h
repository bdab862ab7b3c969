// Events of the cuda_ipc channel, by CUDA's runtime.
#pragma once

#include <memory>

#include "src/transport/cuda_ipc/driver.h"

namespace layercast::cuda_ipc_channel {

// On that device. Throw as IpcDriver does.
std::unique_ptr<IpcEvent> MakeCudaEvent(int device);
std::unique_ptr<IpcEvent> OpenCudaEvent(int device, const IpcHandle& handle);

}  // namespace layercast::cuda_ipc_channel
