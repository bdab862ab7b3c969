// fp32 to e2m1 codes. Included by the kernels once for each instruction set. EncodeE2M1 (codes.h) says what the code of
// one value is.
#if defined(LAYERCAST_FP4_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_FP4_CODES_INL_H_
#undef LAYERCAST_FP4_CODES_INL_H_
#else
#define LAYERCAST_FP4_CODES_INL_H_
#endif

#include <cstdint>

#include "engine_side/quant/cpu/source-inl.h"
#include "engine_side/quant/scales.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// The constants of E2M1Pairs, which kernels keep in registers.
template <class DF>
struct E2M1Constants {
  using DU = hn::RebindToUnsigned<DF>;
  HWY_INLINE E2M1Constants() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set
  hn::Vec<DF> largest = Keep(hn::Set(DF(), kFp4Max));
  hn::Vec<DU> exponent = Keep(hn::Set(DU(), 0x7f800000U));
  hn::Vec<DU> one = Keep(hn::Set(DU(), 127U << 23));
  hn::Vec<DF> unit = Keep(hn::Set(DF(), 4194304.0F + 3.0F));
  hn::Vec<DU> low_code = Keep(hn::Set(DU(), 7U));
  hn::Vec<DU> high_code = Keep(hn::Set(DU(), 0x70U));
  hn::Vec<DU> low_half = Keep(hn::Set(DU(), 0xfU));
};

// The codes of magnitudes, in the low three bits of each lane; the other bits are garbage. With E = 2^max(exponent of
// p, 0), t = E * (2^22 + 3) + p has the unit 2^(exponent - 1), which is that of e2m1's mantissa (0.5 for its
// subnormal), and (bits(t) + (bits(t) >> 22)) & 7 is the code.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E2M1Magnitudes(const E2M1Constants<DF>& constants, hn::Vec<DF> magnitude) {
  const hn::RebindToUnsigned<DF> du;
  const auto p = hn::Min(magnitude, constants.largest);
  const auto exponent = hn::And(hn::BitCast(du, p), constants.exponent);
  const auto power = hn::BitCast(DF(), hn::Max(exponent, constants.one));
  const auto t = hn::BitCast(du, hn::MulAdd(power, constants.unit, p));
  return hn::Add(t, hn::ShiftRight<22>(t));
}

// Two codes in the low byte of each lane, the even value's in its low half; the other bits are garbage.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E2M1Pairs(const E2M1Constants<DF>& constants, const Pairs<DF>& values) {
  const hn::RebindToUnsigned<DF> du;
  const auto even = E2M1Magnitudes(constants, hn::Abs(values.even));
  const auto odd = E2M1Magnitudes(constants, hn::Abs(values.odd));
  const auto even_sign = hn::ShiftRight<28>(hn::BitCast(du, values.even));
  const auto odd_sign = hn::ShiftRight<24>(hn::BitCast(du, values.odd));
  const auto low = Select(constants.low_code, even, even_sign);
  const auto high = Select(constants.high_code, hn::ShiftLeft<4>(odd), odd_sign);
  return Select(constants.low_half, low, high);
}

// Puts the codes of four vectors of 16-bit weights in order, two in a byte.
class CodesInOrder {
 public:
  HWY_INLINE CodesInOrder() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  using D16 = hn::RepartitionToWide<ByteTag>;

  // Each argument holds the codes of two vectors in turns: a byte of the one, a byte of the other.
  HWY_INLINE hn::Vec<ByteTag> operator()(hn::Vec<D16> first, hn::Vec<D16> second) const {
    const auto turns = Select(first_two_, Joined(first), hn::ShiftLeft<16>(Joined(second)));
    return bytes_in_order_(hn::BitCast(ByteTag(), turns));
  }

 private:
  using DU = hn::Repartition<std::uint32_t, ByteTag>;

  // Joins the codes of neighbours in a byte. The first two bytes of a lane are joined so; those above are garbage.
  static HWY_INLINE hn::Vec<DU> Joined(hn::Vec<D16> codes) {
    const auto both = hn::BitCast(DU(), codes);
    return hn::Or(both, hn::ShiftRight<12>(both));
  }

  hn::Vec<DU> first_two_ = Keep(hn::Set(DU(), 0xffffU));
  BytesInOrder bytes_in_order_;
};

#endif

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
