#include "engine_side/device/move_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "engine_side/device/move_elements.cuh"
#include "engine_side/quant/cuda/dispatch.cuh"
#include "layercast/error.h"
#include "src/tensor/conversions.h"

namespace layercast {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 4096;  // several for each multiprocessor of the largest devices

template <class Element>
__global__ void __launch_bounds__(kThreads) ForElements(const __grid_constant__ Element element, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    element(i);
  }
}

template <class Element>
void Run(const Element& element, std::int64_t count, CUstream_st* stream) {
  if (count == 0) return;
  const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  ForElements<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(element, count);
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  throw Error(ErrorCode::kInternal,
              std::string("a kernel that moves elements was not started: ") + cudaGetErrorString(status));
}

// Calls body(T{}) for an unsigned type of so many bytes.
template <class Body>
void ForBytes(int element_bytes, const Body& body) {
  switch (element_bytes) {
    case 1: return body(std::uint8_t{});
    case 2: return body(std::uint16_t{});
    case 4: return body(std::uint32_t{});
    case 8: return body(std::uint64_t{});
    default: throw Error(ErrorCode::kInternal, "elements of " + std::to_string(element_bytes) + " bytes");
  }
}

template <class Body>
void ForCast(DType dtype, const Body& body) {
  if (dtype == cuda::kDTypeBF16) return body(conversions::BF16{});
  if (dtype == cuda::kDTypeF16) return body(conversions::F16{});
  if (dtype == cuda::kDTypeF32) return body(conversions::F32{});
  if (dtype == cuda::kDTypeF64) return body(conversions::F64{});
  throw Error(ErrorCode::kInternal, "no cast of dtype " + std::to_string(static_cast<int>(dtype)));
}

}  // namespace

void CudaScatter(int element_bytes, const void* packed, void* to, const ElementWalk& walk, std::int64_t first,
                 std::int64_t count, CUstream_st* stream) {
  ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    const cuda::ScatterElement<cuda::Raw<T>, cuda::Raw<T>> element{static_cast<const T*>(packed), static_cast<T*>(to),
                                                                   walk, first};
    Run(element, count, stream);
  });
}

void CudaGather(int element_bytes, const void* from, const ElementWalk& walk, std::int64_t first, std::int64_t count,
                void* packed, CUstream_st* stream) {
  ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    const cuda::GatherElement<T> element{static_cast<const T*>(from), static_cast<T*>(packed), walk, first};
    Run(element, count, stream);
  });
}

void CudaZero(int element_bytes, void* to, const ElementWalk& walk, std::int64_t count, CUstream_st* stream) {
  ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    Run(cuda::ZeroElement<T>{static_cast<T*>(to), walk}, count, stream);
  });
}

void CudaScatterCast(DType from, const void* packed, DType to_dtype, void* to, const ElementWalk& walk,
                     std::int64_t first, std::int64_t count, CUstream_st* stream) {
  ForCast(from, [&](auto from_type) {
    ForCast(to_dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const cuda::ScatterElement<From, To> element{static_cast<const typename From::Bits*>(packed),
                                                   static_cast<typename To::Bits*>(to), walk, first};
      Run(element, count, stream);
    });
  });
}

void CudaFind(int element_bytes, const void* from, std::int64_t count, std::uint64_t mask, std::uint64_t value,
              CudaFaultWord* fault, CUstream_st* stream) {
  ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    Run(cuda::FindElement<T>{static_cast<const T*>(from), static_cast<T>(mask), static_cast<T>(value), fault}, count,
        stream);
  });
}

}  // namespace layercast
