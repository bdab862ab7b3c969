// The CUDA kernel that finds the first NaN or infinity, by the bits that all such elements of a type have in common. A
// thread does one element.
#pragma once

#include <cstdint>

#include "src/device/kernels/dispatch_dtype.cuh"

namespace layercast::cuda {

// Called with 0, 1, ... count - 1, in any order.
template <class T>
struct FindElement {
  const T* from;
  T mask, bits;
  CudaFaultWord* fault;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    if ((from[i] & mask) == bits) MergeMin(fault, EncodeCudaFault({CudaFault::Kind::kNan, i}));
  }
};

template <class Runner>
void RunFind(const Runner& runner, int element_bytes, const void* from, std::int64_t count, std::uint64_t mask,
             std::uint64_t bits, CudaFaultWord* fault) {
  ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    runner.Run(FindElement<T>{static_cast<const T*>(from), static_cast<T>(mask), static_cast<T>(bits), fault}, count);
  });
}

}  // namespace layercast::cuda
