// Starts kernels that are compiled for the host (simulated_kernels.h).
#pragma once

#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>

namespace simulated_cuda {

// Queues the kernel of which `thread` is what one thread does. Refuses what a device would. If the kernel was not
// loaded (cudaFuncGetAttributes), that is done now, and waits for all that runs on the device.
cudaError_t Launch(const void* kernel, const dim3& blocks, const dim3& threads, std::size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> thread);

}  // namespace simulated_cuda
