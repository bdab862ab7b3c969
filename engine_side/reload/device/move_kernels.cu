#include "engine_side/reload/device/move_kernels.h"

#include <string>

#include "engine_side/reload/device/move_elements.cuh"
#include "layercast/error.h"
#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/device/kernels/for_elements.cuh"
#include "src/tensor/conversions.h"

namespace layercast {
namespace {

template <class Body>
void ForCast(DType dtype, const Body& body) {
  if (dtype == cuda::kDTypeBF16) return body(conversions::BF16{});
  if (dtype == cuda::kDTypeF16) return body(conversions::F16{});
  if (dtype == cuda::kDTypeF32) return body(conversions::F32{});
  if (dtype == cuda::kDTypeF64) return body(conversions::F64{});
  throw Error(ErrorCode::kInternal, "no cast of dtype " + std::to_string(static_cast<int>(dtype)));
}

template <class Runner>
void Scatter(const Runner& runner, int element_bytes, const void* packed, void* to, const Walk& walk,
             std::int64_t first, std::int64_t count) {
  cuda::ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    const cuda::ScatterElement<T> element{static_cast<const T*>(packed), static_cast<T*>(to), walk, first};
    runner.Run(element, count);
  });
}

template <class Runner>
void Gather(const Runner& runner, int element_bytes, const void* from, const Walk& walk, std::int64_t first,
            std::int64_t count, void* packed) {
  cuda::ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    runner.Run(cuda::GatherElement<T>{static_cast<const T*>(from), static_cast<T*>(packed), walk, first}, count);
  });
}

template <class Runner>
void Zero(const Runner& runner, int element_bytes, void* to, const Walk& walk, std::int64_t count) {
  cuda::ForBytes(element_bytes, [&](auto type) {
    using T = decltype(type);
    runner.Run(cuda::ZeroElement<T>{static_cast<T*>(to), walk}, count);
  });
}

template <class Runner>
void ScatterCast(const Runner& runner, DType from, const void* packed, DType to_dtype, void* to, const Walk& walk,
                 std::int64_t first, std::int64_t count, CudaFaultWord* fault) {
  ForCast(from, [&](auto from_type) {
    ForCast(to_dtype, [&](auto to_type) {
      using From = decltype(from_type);
      using To = decltype(to_type);
      const cuda::ScatterCastElement<From, To> element{static_cast<const typename From::Bits*>(packed),
                                                       static_cast<typename To::Bits*>(to), walk, first, fault};
      runner.Run(element, count);
    });
  });
}

template <class Runner>
void NegateExponential(const Runner& runner, DType dtype, const void* from, std::int64_t count, float* to) {
  ForCast(dtype, [&](auto type) {
    using From = decltype(type);
    runner.Run(cuda::NegateExponentialElement<From>{static_cast<const typename From::Bits*>(from), to}, count);
  });
}

}  // namespace

void LoadMoveKernels() {
  const cuda::LoadElementsOnDevice runner;
  for (const int bytes : {1, 2, 4, 8}) {
    Scatter(runner, bytes, nullptr, nullptr, {}, 0, 0);
    Gather(runner, bytes, nullptr, {}, 0, 0, nullptr);
    Zero(runner, bytes, nullptr, {}, 0);
  }
  const DType cast[] = {cuda::kDTypeBF16, cuda::kDTypeF16, cuda::kDTypeF32, cuda::kDTypeF64};
  for (const DType from : cast) {
    NegateExponential(runner, from, nullptr, 0, nullptr);
    for (const DType to : cast) ScatterCast(runner, from, nullptr, to, nullptr, {}, 0, 0, nullptr);
  }
}

void CudaScatter(int element_bytes, const void* packed, void* to, const Walk& walk, std::int64_t first,
                 std::int64_t count, CUstream_st* stream) {
  Scatter(cuda::ElementsOnDevice(stream), element_bytes, packed, to, walk, first, count);
}

void CudaGather(int element_bytes, const void* from, const Walk& walk, std::int64_t first, std::int64_t count,
                void* packed, CUstream_st* stream) {
  Gather(cuda::ElementsOnDevice(stream), element_bytes, from, walk, first, count, packed);
}

void CudaZero(int element_bytes, void* to, const Walk& walk, std::int64_t count, CUstream_st* stream) {
  Zero(cuda::ElementsOnDevice(stream), element_bytes, to, walk, count);
}

void CudaScatterCast(DType from, const void* packed, DType to_dtype, void* to, const Walk& walk, std::int64_t first,
                     std::int64_t count, CudaFaultWord* fault, CUstream_st* stream) {
  ScatterCast(cuda::ElementsOnDevice(stream), from, packed, to_dtype, to, walk, first, count, fault);
}

void CudaNegateExponential(DType dtype, const void* from, std::int64_t count, float* to, CUstream_st* stream) {
  NegateExponential(cuda::ElementsOnDevice(stream), dtype, from, count, to);
}

}  // namespace layercast
