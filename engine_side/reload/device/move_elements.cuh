// What one thread does with one element, in order to scatter, gather, zero or derive tensors on a device. The same code
// runs on the host, where tests run it without a device. Valid as C++17. The casts give the bits of src/tensor/cast.h.
#pragma once

#include <cstdint>

#include "src/base/digest/host_device.h"
#include "src/device/kernels/cuda_fault.h"
#include "src/device/kernels/words.cuh"
#include "src/tensor/conversions.h"
#include "src/tensor/exponential.h"
#include "src/tensor/walk.h"

namespace layercast::cuda {

template <class From>
LAYERCAST_HOST_DEVICE double ValueOf(typename From::Bits bits) {
  return static_cast<double>(From::ToFloat(bits));
}
template <>
LAYERCAST_HOST_DEVICE inline double ValueOf<conversions::F64>(double value) {
  return value;
}

// Each of the following is called with 0, 1, ... count - 1, in any order.

template <class T>
struct ScatterElement {
  const T* packed;
  T* to;
  Walk walk;
  std::int64_t first;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { to[walk.At(first + i)] = packed[i]; }
};

// The fault is a CudaCastFault.
template <class From, class To>
struct ScatterCastElement {
  const typename From::Bits* packed;
  typename To::Bits* to;
  Walk walk;
  std::int64_t first;
  CudaFaultWord* fault;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    const typename To::Bits cast = To::FromFloat(From::ToFloat(packed[i]));
    to[walk.At(first + i)] = cast;
    if (!conversions::IsFinite<To>(cast)) MergeMin(fault, EncodeCudaCastFault({i, ValueOf<From>(packed[i])}));
  }
};

template <class T>
struct GatherElement {
  const T* from;
  T* packed;
  Walk walk;
  std::int64_t first;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { packed[i] = from[walk.At(first + i)]; }
};

template <class T>
struct ZeroElement {
  T* to;
  Walk walk;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { to[walk.At(i)] = T{}; }
};

template <class From>
struct NegateExponentialElement {
  const typename From::Bits* from;
  float* to;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { to[i] = NegatedExponential(From::ToFloat(from[i])); }
};

}  // namespace layercast::cuda
