// What one thread does with one element, in order to scatter, gather, zero or derive tensors on a device. The same code
// runs on the host, where tests run it without a device. Valid as C++17. The casts give the bits of src/tensor/cast.h.
#pragma once

#include <cstdint>

#include "engine_side/device/element_walk.h"
#include "src/base/host_device.h"
#include "src/tensor/exponential.h"

namespace layercast::cuda {

// A type of elements that are moved as they are.
template <class T>
struct Raw {
  using Bits = T;
};

template <class From, class To>
struct Convert {
  LAYERCAST_HOST_DEVICE static typename To::Bits Of(typename From::Bits value) {
    return To::FromFloat(From::ToFloat(value));
  }
};
template <class Same>
struct Convert<Same, Same> {
  LAYERCAST_HOST_DEVICE static typename Same::Bits Of(typename Same::Bits value) { return value; }
};

// Each of the following is called with 0, 1, ... count - 1, in any order.

template <class From, class To>
struct ScatterElement {
  const typename From::Bits* packed;
  typename To::Bits* to;
  ElementWalk walk;
  std::int64_t first;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    to[walk.At(first + i)] = Convert<From, To>::Of(packed[i]);
  }
};

template <class T>
struct GatherElement {
  const T* from;
  T* packed;
  ElementWalk walk;
  std::int64_t first;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { packed[i] = from[walk.At(first + i)]; }
};

template <class T>
struct ZeroElement {
  T* to;
  ElementWalk walk;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { to[walk.At(i)] = T{}; }
};

template <class From>
struct NegateExponentialElement {
  const typename From::Bits* from;
  float* to;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const { to[i] = NegatedExponential(From::ToFloat(from[i])); }
};

}  // namespace layercast::cuda
