// How elements become FP8 codes, on one instruction set; included by the kernels once for each.
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
#include <type_traits>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/fp8_table.h"
#include "engine_side/quant/source-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

enum class Quotient { kReciprocal, kDivision };

struct Scale {
  float scale = 1.0F;
  float reciprocal = 1.0F;
  TableUse by_table;  // bf16 only
};

#if HWY_TARGET != HWY_SCALAR

// fl(x / s) for kDivision: from q = fl(x * r), the remainder's FMA and one more give the exact quotient's rounding
// where there is an FMA; s is a normal number.
template <Quotient By, class DF, class V = hn::Vec<DF>>
HWY_INLINE V Divide(DF df, V x, const Scale& scale) {
  const V reciprocal = hn::Set(df, scale.reciprocal);
#if HWY_TARGET <= HWY_AVX2
  const V quotient = hn::Mul(x, reciprocal);
  if constexpr (By == Quotient::kReciprocal) return quotient;
  const V remainder = hn::NegMulAdd(quotient, hn::Set(df, scale.scale), x);
  return hn::MulAdd(remainder, reciprocal, quotient);
#else
  if constexpr (By == Quotient::kReciprocal) return hn::Mul(x, reciprocal);
  return hn::Div(x, hn::Set(df, scale.scale));
#endif
}

// The codes of magnitudes, in the low 7 bits of each lane; the other bits are garbage.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E4M3(DF df, hn::Vec<DF> p) {
  const hn::RebindToUnsigned<DF> du;
  const auto exponent = hn::And(hn::BitCast(du, p), hn::Set(du, 0x7f800000U));
  const auto power = hn::BitCast(df, hn::Max(exponent, hn::Set(du, 121U << 23)));
  const auto t = hn::BitCast(du, hn::MulAdd(power, hn::Set(df, 1048576.0F + 19.0F), p));
  return hn::Add(t, hn::ShiftRight<20>(t));
}

// The codes of quotients, with the signs of the weights (dividing may lose that of zero): two in the low 16 bits of
// each lane; the other bits are garbage.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E4M3(DF df, const Pairs<DF>& p, const Pairs<DF>& w) {
  const hn::RebindToUnsigned<DF> du;
  const auto even = E4M3(df, hn::Abs(p.even));
  const auto odd = E4M3(df, hn::Abs(p.odd));
  const auto codes = Select(hn::Set(du, 0x7fU), even, hn::ShiftLeft<8>(odd));
  const auto with_even_sign = Select(hn::Set(du, 0x80U), hn::ShiftRight<24>(hn::BitCast(du, w.even)), codes);
  return Select(hn::Set(du, 0x8000U), hn::ShiftRight<16>(hn::BitCast(du, w.odd)), with_even_sign);
}

// What CodesByTable needs whatever the table.
struct TableConstants {
  HWY_INLINE TableConstants() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  using D8 = ByteTag;
  using D16 = hn::RepartitionToWide<D8>;
  hn::Vec<D8> magnitude = Keep(hn::Set(D8(), std::uint8_t{0x7f}));
  hn::Vec<D16> even = Keep(hn::Set(D16(), std::uint16_t{0x00ff}));
  hn::Vec<D16> group = Keep(hn::Set(D16(), std::uint16_t{0x0f0f}));
  BytesInOrder<std::uint64_t> in_order;
};

// By table, where it holds for all elements of two vectors of 16-bit lanes; else false. Bytes of the two take turns
// until the end.
HWY_INLINE bool CodesByTable(const TableConstants& constants, const std::byte* source, const TableUse& use,
                             hn::Vec<ByteTag>& codes) {
  const ByteTag d8;
  const hn::RepartitionToWide<ByteTag> d16;
  const hn::RebindToSigned<ByteTag> di8;  // x86 compares signed bytes; ours are below 128
  const auto w0 = LoadAny(d16, source);
  const auto w1 = LoadAny(d16, source + hn::Lanes(d8));
  const auto high = hn::BitCast(d8, Select(constants.even, hn::ShiftRight<8>(w0), w1));
  const auto min_high = hn::BitCast(di8, hn::LoadDup128(d8, use.min_high));
  if (!hn::AllFalse(di8, hn::Lt(hn::BitCast(di8, hn::And(high, constants.magnitude)), min_high))) return false;

  const auto low = Select(constants.even, w0, hn::ShiftLeft<8>(w1));
  const auto exponent = hn::BitCast(d8, Select(constants.even, hn::ShiftRight<4>(w0), hn::ShiftLeft<4>(w1)));
  const auto group = hn::BitCast(d8, hn::And(hn::ShiftRight<3>(low), constants.group));
  const auto base = hn::TableLookupBytes(hn::LoadDup128(d8, use.base), group);
  const auto threshold = hn::TableLookupBytes(hn::LoadDup128(d8, use.threshold), group);
  const auto mantissa = hn::And(hn::BitCast(d8, low), constants.magnitude);
  const auto beyond = hn::Gt(hn::BitCast(di8, mantissa), hn::BitCast(di8, threshold));
  const auto step = hn::BitCast(d8, hn::VecFromMask(di8, beyond));  // -1 where beyond
  const auto code = hn::Sub(hn::Add(base, exponent), step);
  codes = constants.in_order(Select(constants.magnitude, code, high));
  return true;
}

// By arithmetic: half of the codes at a time.
template <Quotient By, class Type, class D8>
HWY_INLINE hn::Vec<D8> Codes(Type type, D8 d8, const std::byte* source, const Scale& scale) {
  const hn::RepartitionToWide<D8> d16;
  using DF = hn::Repartition<float, D8>;
  const DF df;
  const auto half = [&](std::size_t first) HWY_ATTR {
    const Pairs<DF> w = LoadPairs(type, df, source + first * sizeof(typename Type::Bits), HighHalf(df));
    const Pairs<DF> quotients = {Divide<By>(df, w.even, scale), Divide<By>(df, w.odd, scale)};
    return hn::BitCast(d16, E4M3(df, quotients, w));
  };
  const auto low = half(0);
  return hn::BitCast(d8, hn::ConcatEven(d16, half(hn::Lanes(d8) / 2), low));
}

#endif  // HWY_TARGET != HWY_SCALAR

// One scale; see chunk_pass-inl.h.
template <class SourceType, Quotient By>
struct Fp8Encoder {
  using Type = SourceType;
  Scale with;

  static Fp8Encoder With(float amax, float scale) {
    return {{scale, 1.0F / scale, FindTable(By == Quotient::kDivision, amax, scale)}};
  }
  float scale() const { return with.scale; }

  std::uint8_t One(float w) const {
    return EncodeE4M3(By == Quotient::kDivision ? w / with.scale : w * with.reciprocal);
  }

#if HWY_TARGET != HWY_SCALAR
  using Constants = TableConstants;

  HWY_INLINE hn::Vec<ByteTag> operator()(const Constants& constants, const std::byte* from) const {
    if constexpr (std::is_same_v<Type, BF16>) {
      hn::Vec<ByteTag> codes;
      if (with.by_table.fits && HWY_LIKELY(CodesByTable(constants, from, with.by_table, codes))) return codes;
    }
    return Codes<By>(Type{}, ByteTag(), from, with);
  }
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
