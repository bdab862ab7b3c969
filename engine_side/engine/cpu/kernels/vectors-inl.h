// Vectors of fp32 as the forward pass uses them, at most as wide as the padding of a row. Compiled for one instruction
// set: the files with kernels include this one once for each.
#if defined(LAYERCAST_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_VECTORS_INL_H_
#undef LAYERCAST_VECTORS_INL_H_
#else
#define LAYERCAST_VECTORS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <span>

#include "engine_side/engine/cpu/kernels/activations.h"
#include "hwy/highway.h"
#include "layercast/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kChunk = Activations::kPad;
using FloatTag = hn::CappedTag<float, kChunk>;
using FloatVec = hn::Vec<FloatTag>;

// Loads a vector from values + i, with zeros past the end.
HWY_INLINE FloatVec LoadRest(FloatTag d, std::span<const float> values, std::size_t i) {
  if (i + hn::Lanes(d) <= values.size()) return hn::LoadU(d, values.data() + i);
  HWY_ALIGN float rest[kChunk] = {};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(i), values.end(), rest);
  return hn::Load(d, rest);
}

// Stores to values + i those elements of a vector that are not past the end.
HWY_INLINE void StoreRest(FloatTag d, FloatVec v, std::span<float> values, std::size_t i) {
  if (i + hn::Lanes(d) <= values.size()) return hn::StoreU(v, d, values.data() + i);
  HWY_ALIGN float rest[kChunk];
  hn::Store(v, d, rest);
  std::copy_n(rest, values.size() - i, values.data() + i);
}

// values[i] := function(i, values[i]), one vector at a time.
template <class Function>
HWY_INLINE void Transform(std::span<float> values, const Function& function) {
  const FloatTag d;
  for (std::size_t i = 0; i < values.size(); i += hn::Lanes(d)) {
    StoreRest(d, function(i, LoadRest(d, values, i)), values, i);
  }
}

HWY_INLINE FloatVec RoundBF16(FloatTag d, FloatVec v) {
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU))), hn::Set(du, 0xffff0000U));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, rounded));
}

HWY_INLINE FloatVec RoundF16(FloatTag d, FloatVec v) {
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  return hn::PromoteTo(d, hn::DemoteTo(dh, v));
}

// Rounds to the nearest value of `dtype`, ties to even. A NaN stays NaN.
HWY_INLINE FloatVec Round(DType dtype, FloatTag d, FloatVec v) {
  if (dtype == DType::kBF16) return RoundBF16(d, v);
  if (dtype == DType::kF16) return RoundF16(d, v);
  return v;
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
