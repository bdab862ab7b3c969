// How a kernel is started. A plain function of the runtime does it, not CUDA's syntax for it, which only a CUDA
// compiler knows: tests compile kernels for the host as well (tests/simulated_cuda).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "src/device/cuda/call.h"

namespace layercast {

// A parameter of which nothing is deduced: std::type_identity, which C++17 lacks.
template <class T>
struct AsGiven {
  using Type = T;
};

// Queues a kernel on a stream of the calling thread's device. Throws what CheckCuda throws; `over` says what the kernel
// works on.
template <class... Parameters>
void LaunchKernel(void (*kernel)(Parameters...), std::int64_t blocks, const dim3& threads, CUstream_st* stream,
                  const char* over, typename AsGiven<Parameters>::Type... arguments) {
  void* taken[] = {&arguments...};
  const cudaError_t started = cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), threads, taken, 0, stream);
  if (started == cudaSuccess) return;
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  CheckCuda(started, std::string("start of a kernel over ") + over, device);
}

}  // namespace layercast
