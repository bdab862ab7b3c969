// fp32 to e2m1 codes on one instruction set; included by kernels once for each. EncodeE2M1 (codes.h) says what the code
// of one value is.
#if defined(LAYERCAST_FP4_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_FP4_CODES_INL_H_
#undef LAYERCAST_FP4_CODES_INL_H_
#else
#define LAYERCAST_FP4_CODES_INL_H_
#endif

#include "engine_side/quant/scales.h"
#include "engine_side/quant/source-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// The codes in the low three bits, and garbage above. E = 2^max(exponent of p, 0), t = E * (2^22 + 3) + p has the unit
// 2^(exponent - 1), that of e2m1's mantissa (0.5 for its subnormal), and (bits(t) + (bits(t) >> 22)) & 7 is the code.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E2M1Magnitudes(DF df, hn::Vec<DF> values) {
  const hn::RebindToUnsigned<DF> du;
  const auto p = hn::Min(hn::Abs(values), hn::Set(df, kFp4Max));
  const auto exponent = hn::And(hn::BitCast(du, p), hn::Set(du, 0x7f800000U));
  const auto power = hn::BitCast(df, hn::Max(exponent, hn::Set(du, 127U << 23)));
  const auto t = hn::BitCast(du, hn::MulAdd(power, hn::Set(df, 4194304.0F + 3.0F), p));
  return hn::Add(t, hn::ShiftRight<22>(t));
}

// Two codes in the low byte of each lane, the even value's in its low half.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E2M1Pairs(DF df, const Pairs<DF>& values) {
  const hn::RebindToUnsigned<DF> du;
  const auto code = [&](hn::Vec<DF> v) HWY_ATTR {
    const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(du, v)), hn::Set(du, 8U));
    return hn::Or(hn::And(E2M1Magnitudes(df, v), hn::Set(du, 7U)), sign);
  };
  return hn::Or(code(values.even), hn::ShiftLeft<4>(code(values.odd)));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
