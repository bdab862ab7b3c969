// Runs functions of one element each on a device: for kernels that read and write in one step, and whose threads need
// not agree on anything.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "src/device/cuda/call.h"
#include "src/device/cuda/launch.cuh"

namespace layercast::cuda {

inline constexpr int kElementThreads = 256;
inline constexpr std::int64_t kMostElementBlocks = 4096;  // several for each multiprocessor of the largest devices

template <class Element>
__global__ void __launch_bounds__(kElementThreads)
    ForElements(const __grid_constant__ Element element, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    element(i);
  }
}

// Runs element(0), element(1), ... element(count - 1) on the device, in any order.
class ElementsOnDevice {
 public:
  explicit ElementsOnDevice(CUstream_st* stream) : stream_(stream) {}

  template <class Element>
  void Run(const Element& element, std::int64_t count) const {
    if (count == 0) return;
    const std::int64_t wanted = (count + kElementThreads - 1) / kElementThreads;
    const std::int64_t blocks = wanted < kMostElementBlocks ? wanted : kMostElementBlocks;
    LaunchKernel(&ForElements<Element>, blocks, dim3(kElementThreads), stream_, "elements", element, count);
  }

 private:
  CUstream_st* stream_;
};

// Used in place of ElementsOnDevice: loads the kernels that it would start.
class LoadElementsOnDevice {
 public:
  template <class Element>
  void Run(const Element& /*element*/, std::int64_t /*count*/) const {
    LoadKernel(reinterpret_cast<const void*>(&ForElements<Element>));
  }
};

}  // namespace layercast::cuda
