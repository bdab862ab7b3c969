// How elements become FP8 codes. Included by the kernels once for each instruction set.
//
// The cast: p = |w| / s in fp32, E = 2^max(exponent of p, -6), t = E * (2^20 + 19) + p. t's unit in the last place is
// 2^(exponent - 3), that of e4m3fn's mantissa (2^-9 for its subnormals), so the single rounding of this sum is the
// rounding of the cast. 19 is even, which keeps ties even, and it takes away the exponent's bias: (bits(t) + (bits(t)
// >> 20)) & 0x7f is the code. E * (2^20 + 19) is exact, so no FMA is needed. All this holds for every p below 480, and
// p is at most 448 and a rounding error.
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
#include "engine_side/quant/cpu/source-inl.h"
#include "engine_side/quant/fp8_table.h"
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

// x * r for kReciprocal, and x / s, rounded once, for kDivision. If there is an FMA, two of them (one for the remainder
// of q = x * r) round the quotient exactly as a division does. s must be a normal number.
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

// The codes of quotients, with the signs of the weights, as division may lose the sign of a zero. There are two in the
// low 16 bits of each lane; the other bits are garbage.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> E4M3(DF df, const Pairs<DF>& p, const Pairs<DF>& w) {
  const hn::RebindToUnsigned<DF> du;
  const auto even = E4M3(df, hn::Abs(p.even));
  const auto odd = E4M3(df, hn::Abs(p.odd));
  const auto codes = Select(hn::Set(du, 0x7fU), even, hn::ShiftLeft<8>(odd));
  const auto with_even_sign = Select(hn::Set(du, 0x80U), hn::ShiftRight<24>(hn::BitCast(du, w.even)), codes);
  return Select(hn::Set(du, 0x8000U), hn::ShiftRight<16>(hn::BitCast(du, w.odd)), with_even_sign);
}

// Codes by table, in 16-bit lanes; fp8_table.h says what is computed.
//
// The sign is never taken off: z = w + Offset(first) is y + 0x7800, or y + 0xf800 for negative weights. Where the table
// holds, y is below 0x800, so the four bits below the sign are all set, and this shows that it holds. (`first` is at
// most 0x7800; otherwise far smaller weights would have them set too.) As a signed byte, the code of a negative weight
// is less by 128: in 16 bits, the codes are (y + add) >> 4 and (0xf800 + y + add) >> 4. So 0x8800 more must be added if
// the weight is positive. That is add[0] in the high byte, which the lookup gives unless the sign is set: an index from
// 128 on gives 0.
class TableCodes {
 public:
  HWY_INLINE TableCodes() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  using D = hn::RebindToSigned<hn::RepartitionToWide<ByteTag>>;
  using V = hn::Vec<D>;

  static constexpr std::int16_t Offset(std::uint16_t first) { return static_cast<std::int16_t>(kHeld - first); }

  // Whether the table holds for all of several z. `all` is these joined by And.
  HWY_INLINE bool Hold(V all) const { return hn::AllTrue(D(), hn::Eq(hn::And(all, held_), held_)); }

  // The codes of two vectors of z.
  HWY_INLINE hn::Vec<ByteTag> operator()(hn::Vec<ByteTag> add, V low, V high) const {
    return low_bytes_(Codes(add, low), Codes(add, high));
  }

 private:
  HWY_INLINE V Codes(hn::Vec<ByteTag> add, V z) const {
    static_assert(TableUse::kFirstAdd == 0x88);
    const auto index = hn::BitCast(ByteTag(), hn::And(hn::ShiftRight<3>(z), group_));
    return hn::ShiftRight<4>(hn::Add(z, hn::BitCast(D(), hn::TableLookupBytesOr0(add, index))));
  }

  static constexpr int kHeld = 0x7800;

  V held_ = Keep(hn::Set(D(), std::int16_t{kHeld}));
  V group_ = Keep(hn::Set(D(), static_cast<std::int16_t>(0x800f)));
  LowBytes low_bytes_;
};

// Codes by arithmetic, half of them at a time.
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

// The encoder (see chunk_pass-inl.h) of weights that have one scale.
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
  using Constants = TableCodes;

  static constexpr bool kHasTable = std::is_same_v<Type, BF16>;
  bool table_fits() const { return with.by_table.fits; }

  class ByTable {
   public:
    HWY_INLINE ByTable(const Constants& codes, const Fp8Encoder& encoder)
        : codes_(codes),
          add_(hn::LoadDup128(ByteTag(), encoder.with.by_table.add)),
          offset_(hn::Set(TableCodes::D(), TableCodes::Offset(encoder.with.by_table.first))) {}

    template <class Put>
    HWY_INLINE bool operator()(const std::byte* from, const Put& put) const {
      const TableCodes::D d;
      const std::size_t bytes = hn::Lanes(ByteTag());
      constexpr std::size_t kVectors = 2 * kChunk / hn::MaxLanes(ByteTag());
      TableCodes::V z[kVectors];
      for (std::size_t i = 0; i < kVectors; ++i) z[i] = hn::Add(LoadAny(d, from + i * bytes), offset_);
      auto all = z[0];
      for (std::size_t i = 1; i < kVectors; ++i) all = hn::And(all, z[i]);
      if (HWY_UNLIKELY(!codes_.Hold(all))) return false;
      for (std::size_t i = 0; i < kVectors; i += 2) put(i / 2 * bytes, codes_(add_, z[i], z[i + 1]));
      return true;
    }

   private:
    const Constants& codes_;
    hn::Vec<ByteTag> add_;
    TableCodes::V offset_;
  };

  class ByArithmetic {
   public:
    HWY_INLINE ByArithmetic(const Constants& /*constants*/, const Fp8Encoder& encoder) : scale_(encoder.with) {}

    template <class Put>
    HWY_INLINE bool operator()(const std::byte* from, const Put& put) const {
      const ByteTag d8;
      for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d8)) {
        put(i, Codes<By>(Type{}, d8, from + i * sizeof(typename Type::Bits), scale_));
      }
      return true;
    }

   private:
    Scale scale_;
  };
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
