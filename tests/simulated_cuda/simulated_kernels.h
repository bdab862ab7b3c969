// Included first when a CUDA source is compiled for the host: what nvcc would know by itself, as far as Layercast's
// kernels use it. A kernel is a plain function here, and is started as on a device: by cudaLaunchKernel.
#pragma once

#define __shared__ static thread_local  // a thread of the host runs one block at a time
#define __launch_bounds__(...)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "tests/simulated_cuda/simulated_block.h"
#include "tests/simulated_cuda/simulated_launch.h"

#define threadIdx (::simulated_cuda::Here().thread)
#define blockIdx (::simulated_cuda::Here().block)
#define blockDim (::simulated_cuda::Here().threads)
#define gridDim (::simulated_cuda::Here().blocks)

inline std::uint32_t max(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
inline void __syncthreads() { simulated_cuda::AwaitBlock(); }
inline void ExpectAllLanes(unsigned lanes) {
  if (lanes != 0xffffffffU) throw std::logic_error("only whole warps exchange values here");
}
template <class T>
T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  ExpectAllLanes(lanes);
  return static_cast<T>(simulated_cuda::ExchangeXor(value, static_cast<unsigned>(mask)));
}
inline std::uint32_t __reduce_max_sync(unsigned lanes, std::uint32_t value) {
  ExpectAllLanes(lanes);
  return simulated_cuda::LargestOfWarp(value);
}

// The arguments are copied at once, as CUDA copies them.
template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, void** arguments,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    std::tuple<Parameters...> taken(*static_cast<Parameters*>(arguments[i])...);
    return simulated_cuda::Launch(reinterpret_cast<const void*>(kernel), blocks, threads, shared_bytes, stream,
                                  [kernel, taken] { std::apply(kernel, taken); });
  }(std::index_sequence_for<Parameters...>());
}
