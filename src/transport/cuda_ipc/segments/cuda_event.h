// The events of the cuda_ipc channel, implemented by CUDA's runtime. Used by cuda_driver.h.
#pragma once

#include <memory>

#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// Make and open an event on CUDA device `device`. Both throw as IpcDriver does.
std::unique_ptr<IpcEvent> MakeCudaEvent(int device);
std::unique_ptr<IpcEvent> OpenCudaEvent(int device, const IpcHandle& handle);

}  // namespace layercast::cuda_ipc_channel
