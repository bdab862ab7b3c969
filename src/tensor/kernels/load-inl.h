// LoadAny loads a vector from any address. Kernels include this file once for each instruction set.
#if defined(LAYERCAST_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_LOAD_INL_H_
#undef LAYERCAST_LOAD_INL_H_
#else
#define LAYERCAST_LOAD_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> LoadAny(D d, const std::byte* from) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR  // its LoadU needs an aligned address
  T value;
  std::memcpy(&value, from, sizeof(T));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
