// How 64 elements become 64 FP8 codes, on one instruction set; included by fp8_kernels.cc once for each.
//
// The cast: p = |w| / s in fp32, E = 2^max(exponent of p, -6), t = E * (2^20 + 19) + p. t's unit in the last place is
// 2^(exponent - 3), that of e4m3fn's mantissa (2^-9 for its subnormals), so the one rounding of this sum is the
// rounding of the cast; 19 is even, which keeps ties even, and takes the exponent's bias away:
// (bits(t) + (bits(t) >> 20)) & 0x7f is the code. E * (2^20 + 19) is exact, so an FMA is not needed.
// True for every p below 480; p is at most 448 and a rounding.
#if defined(LAYERCAST_FP8_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_FP8_CODES_INL_H_
#undef LAYERCAST_FP8_CODES_INL_H_
#else
#define LAYERCAST_FP8_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine_side/quant/fp8_table.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kChunk = 64;  // elements

// Source types: how their magnitudes are held, and how they are cast.
template <class U>
struct SourceType {
  using Bits = U;
  static constexpr U kNoSign = static_cast<U>(~U{0}) >> 1;
};
struct BF16 : SourceType<std::uint16_t> {};
struct F16 : SourceType<std::uint16_t> {};
struct F32 : SourceType<std::uint32_t> {};

enum class Quotient { kReciprocal, kDivision };

struct Scale {
  float scale = 1.0F;
  float reciprocal = 1.0F;
  TableUse by_table;  // bf16 only
};

template <class D>
HWY_INLINE hn::Vec<D> LoadAny(D d, const std::byte* from) {
  using T = hn::TFromD<D>;
#if HWY_TARGET == HWY_SCALAR  // whose LoadU wants an aligned address
  T value;
  std::memcpy(&value, from, sizeof(T));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, reinterpret_cast<const T*>(from));
#endif
}

#if HWY_TARGET != HWY_SCALAR

// Bit by bit. (IfVecThenElse looks at whole lanes where there is no instruction for this.)
template <class V>
HWY_INLINE V Select(V mask, V yes, V no) {
#if HWY_TARGET <= HWY_AVX3
  return hn::IfVecThenElse(mask, yes, no);
#else
  return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

// fl(x / s) for kDivision: from q = fl(x * r), the remainder's FMA and one more give the exact quotient's rounding
// where there is an FMA; s is a normal number.
template <Quotient By, class DF, class V = hn::Vec<DF>>
HWY_INLINE V Divide(DF df, V magnitude, const Scale& scale) {
  const V reciprocal = hn::Set(df, scale.reciprocal);
#if HWY_TARGET <= HWY_AVX2
  const V quotient = hn::Mul(magnitude, reciprocal);
  if constexpr (By == Quotient::kReciprocal) return quotient;
  const V remainder = hn::NegMulAdd(quotient, hn::Set(df, scale.scale), magnitude);
  return hn::MulAdd(remainder, reciprocal, quotient);
#else
  if constexpr (By == Quotient::kReciprocal) return hn::Mul(magnitude, reciprocal);
  return hn::Div(magnitude, hn::Set(df, scale.scale));
#endif
}

// The codes of magnitudes, in the low 7 bits of each lane; the other bits are garbage.
template <Quotient By, class DF, class V = hn::Vec<DF>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(DF df, V magnitude, const Scale& scale) {
  const hn::RebindToUnsigned<DF> du;
  const V p = Divide<By>(df, magnitude, scale);
  const auto exponent = hn::And(hn::BitCast(du, p), hn::Set(du, 0x7f800000U));
  const V power = hn::BitCast(df, hn::Max(exponent, hn::Set(du, 121U << 23)));
  const auto t = hn::BitCast(du, hn::MulAdd(power, hn::Set(df, 1048576.0F + 19.0F), p));
  return hn::Add(t, hn::ShiftRight<20>(t));
}

// By table, where it holds for all elements of two vectors of 16-bit lanes; else false.
template <class D8>
HWY_INLINE bool CodesByTable(BF16 /*type*/, D8 d8, const std::byte* source, const TableUse& use, hn::Vec<D8>& codes) {
  const hn::RepartitionToWide<D8> d16;
  const hn::RebindToSigned<D8> di8;  // x86 compares signed bytes; ours are below 128
  const auto* elements = reinterpret_cast<const std::uint16_t*>(source);
  const auto w0 = hn::LoadU(d16, elements);
  const auto w1 = hn::LoadU(d16, elements + hn::Lanes(d16));
  const auto high = hn::ConcatOdd(d8, hn::BitCast(d8, w1), hn::BitCast(d8, w0));
  const auto no_sign = hn::Set(d8, std::uint8_t{0x7f});
  const auto min_high = hn::Set(di8, static_cast<std::int8_t>(use.min_high));
  if (!hn::AllFalse(di8, hn::Lt(hn::BitCast(di8, hn::And(high, no_sign)), min_high))) return false;

  const auto low = hn::ConcatEven(d8, hn::BitCast(d8, w1), hn::BitCast(d8, w0));
  const auto mantissa = hn::And(low, no_sign);
  const auto group =
      hn::BitCast(d8, hn::And(hn::ShiftRight<3>(hn::BitCast(d16, low)), hn::Set(d16, std::uint16_t{0x0f0f})));
  const auto base = hn::TableLookupBytes(hn::LoadDup128(d8, use.table->base), group);
  const auto threshold = hn::TableLookupBytes(hn::LoadDup128(d8, use.table->threshold), group);
  const auto beyond = hn::Gt(hn::BitCast(di8, mantissa), hn::BitCast(di8, threshold));
  const auto step = hn::BitCast(d8, hn::VecFromMask(di8, beyond));  // -1 where beyond
  const auto exponent =
      hn::ConcatEven(d8, hn::BitCast(d8, hn::ShiftRight<4>(w1)), hn::BitCast(d8, hn::ShiftRight<4>(w0)));
  const auto code = hn::Sub(hn::Add(hn::Add(base, hn::Set(d8, use.offset)), exponent), step);
  codes = Select(no_sign, code, high);
  return true;
}

// Two vectors of 16-bit lanes: even and odd elements are cast in 32-bit lanes, so that their order is kept.
template <Quotient By, class D8>
HWY_INLINE hn::Vec<D8> Codes(BF16 /*type*/, D8 d8, const std::byte* source, const Scale& scale) {
  const hn::RepartitionToWide<D8> d16;
  const hn::RepartitionToWide<decltype(d16)> d32;
  const hn::RebindToFloat<decltype(d32)> df;
  const auto* elements = reinterpret_cast<const std::uint16_t*>(source);
  const auto half = [&](const std::uint16_t* from) HWY_ATTR {
    const auto w = hn::LoadU(d16, from);
    const auto u = hn::BitCast(d32, hn::And(w, hn::Set(d16, BF16::kNoSign)));
    const auto even = Encode<By>(df, hn::BitCast(df, hn::ShiftLeft<16>(u)), scale);
    const auto odd = Encode<By>(df, hn::BitCast(df, hn::And(u, hn::Set(d32, 0xffff0000U))), scale);
    const auto code = hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(odd)), hn::BitCast(d16, even));
    return hn::BitCast(d8, Select(hn::Set(d16, std::uint16_t{0x80}), hn::ShiftRight<8>(w), code));
  };
  const auto low = half(elements);
  return hn::ConcatEven(d8, half(elements + hn::Lanes(d16)), low);
}

HWY_INLINE auto LoadFloats(F32 /*type*/, const std::byte* source, std::size_t vector) {
  const hn::CappedTag<float, kChunk / 4> df;
  return hn::LoadU(df, reinterpret_cast<const float*>(source) + vector * hn::Lanes(df));
}

HWY_INLINE auto LoadFloats(F16 /*type*/, const std::byte* source, std::size_t vector) {
  const hn::CappedTag<float, kChunk / 4> df;
  const hn::Rebind<hwy::float16_t, decltype(df)> d16;
  return hn::PromoteTo(df, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(source) + vector * hn::Lanes(df)));
}

// Four vectors of fp32 lanes.
template <Quotient By, class Type, class D8>
HWY_INLINE hn::Vec<D8> Codes(Type type, D8 d8, const std::byte* source, const Scale& scale) {
  const hn::RepartitionToWide<D8> d16;
  const hn::CappedTag<float, kChunk / 4> df;
  const hn::RebindToUnsigned<decltype(df)> d32;
  const auto quarter = [&](std::size_t vector) HWY_ATTR {
    const auto w = LoadFloats(type, source, vector);
    const auto code = Encode<By>(df, hn::Abs(w), scale);
    const auto sign = hn::ShiftRight<24>(hn::BitCast(d32, w));
    return hn::BitCast(d16, Select(hn::Set(d32, 0x80U), sign, code));
  };
  const auto low = hn::BitCast(d8, hn::ConcatEven(d16, quarter(1), quarter(0)));
  const auto high = hn::BitCast(d8, hn::ConcatEven(d16, quarter(3), quarter(2)));
  return hn::ConcatEven(d8, high, low);
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
