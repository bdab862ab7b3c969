// Decoders that turn what a forward pass reads into vectors of fp32, one for each type of element. Compiled for one
// instruction set: weight_view.cc includes this file once for each.
//
// A decoder returns the vector of a row's elements from `i` on; `i` is a multiple of the vector's lanes.
#if defined(LAYERCAST_ELEMENT_DECODERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_ELEMENT_DECODERS_INL_H_
#undef LAYERCAST_ELEMENT_DECODERS_INL_H_
#else
#define LAYERCAST_ELEMENT_DECODERS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "engine_side/engine/cpu/kernels/vectors-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

template <class Element>
HWY_INLINE const Element* ElementsAt(const std::byte* row, std::size_t i) {
  return reinterpret_cast<const Element*>(row) + i;
}

struct FromF32 {
  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    return hn::LoadU(d, ElementsAt<float>(row, i));
  }
};

struct FromBF16 {
  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    const hn::RebindToUnsigned<FloatTag> du;
    const hn::Rebind<std::uint16_t, FloatTag> dn;
    const auto bits = hn::LoadU(dn, ElementsAt<std::uint16_t>(row, i));
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
  }
};

struct FromF16 {
  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    const hn::Rebind<hwy::float16_t, FloatTag> dn;
    return hn::PromoteTo(d, hn::LoadU(dn, ElementsAt<hwy::float16_t>(row, i)));
  }
};

struct FromI8 {
  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    const hn::RebindToSigned<FloatTag> di;
    const hn::Rebind<std::int8_t, FloatTag> dn;
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dn, ElementsAt<std::int8_t>(row, i))));
  }
};

struct FromF8 {
  const float* values;  // values of the 256 codes

  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    const hn::RebindToSigned<FloatTag> di;
    const hn::Rebind<std::uint8_t, FloatTag> dn;
    return hn::GatherIndex(d, values, hn::PromoteTo(di, hn::LoadU(dn, ElementsAt<std::uint8_t>(row, i))));
  }
};

// Two elements share a byte, the even one in the low half.
struct FromF4 {
  const float* values;  // values of the 16 codes

  HWY_INLINE FloatVec operator()(FloatTag d, const std::byte* row, std::size_t i) const {
    const auto* bytes = ElementsAt<std::uint8_t>(row, i / 2);
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, values[*bytes >> (i % 2 * 4) & 15]);
#else
    const hn::RebindToSigned<FloatTag> di;
    const hn::Rebind<std::uint8_t, FloatTag> dn;
    const hn::Half<decltype(dn)> half;
    const auto pairs = hn::ZeroExtendVector(dn, hn::LoadU(half, bytes));
    const auto low = hn::And(pairs, hn::Set(dn, std::uint8_t{15}));
    return hn::GatherIndex(d, values, hn::PromoteTo(di, hn::InterleaveLower(dn, low, hn::ShiftRight<4>(pairs))));
#endif
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
