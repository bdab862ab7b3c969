#include "engine_side/quant/kernels.h"

#include <cmath>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/mxfp8_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/fp8_codes-inl.h"
#include "engine_side/quant/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

class Mxfp8 {
 public:
  static constexpr std::size_t kBlock = kMxBlock;
  static constexpr std::size_t kPerByte = 1;

  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales) const {
    for (std::size_t b = 0; b < blocks; ++b) scales[b] = MxExponent(amax[b], kMxfp8Element);
  }
  HWY_INLINE void MakeFactors(const std::uint8_t* scales, std::size_t blocks, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) factors[b] = MxFactor(scales[b]);
  }

  std::uint8_t One(float product) const { return EncodeE4M3(product); }

#if HWY_TARGET != HWY_SCALAR
  static constexpr bool kByBits = true;

  struct Constants {
    using D16 = hn::RepartitionToWide<ByteTag>;
    HWY_INLINE Constants() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set
    hn::Vec<D16> no_sign = Keep(hn::Set(D16(), std::uint16_t{0x7fff}));
    hn::Vec<D16> one = Keep(hn::Set(D16(), std::uint16_t{1}));
    hn::Vec<D16> bias = Keep(hn::Set(D16(), std::uint16_t{134}));
    hn::Vec<D16> sign = Keep(hn::Set(D16(), std::uint16_t{0x0080}));
    hn::Vec<D16> even = Keep(hn::Set(D16(), std::uint16_t{0x00ff}));
    BytesInOrder<std::uint64_t> in_order;
  };

  template <class DF>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(const Constants& /*constants*/, DF df, const Pairs<DF>& products,
                                                      hn::Vec<DF> /*factors*/) const {
    return E4M3(df, products, products);
  }

  void PrepareBits(const std::uint8_t* scales, std::size_t blocks) {
    for (std::size_t b = 0; b < blocks; ++b) lowest_[b] = LowestBits(scales[b]) * 0x10001U;
  }

  // A power of two leaves the mantissa alone: with y = |w| - lowest, as integers, the code is y + 0x80, without its
  // last four bits, rounded to nearest, ties to even: (y + 135 + (bit 4 of w)) >> 4. Averages add and shift by one.
  HWY_INLINE bool CodesByBits(const Constants& constants, const std::byte* source, std::size_t first,
                              hn::Vec<ByteTag>& codes) const {
    const std::uint32_t low0 = lowest_[first / kBlock];
    const std::uint32_t low1 = lowest_[(first + hn::Lanes(ByteTag()) / 2) / kBlock];
    const hn::RepartitionToWide<ByteTag> d16;
    const hn::Repartition<std::uint32_t, ByteTag> d32;
    const hn::RebindToSigned<decltype(d16)> di16;
    const auto w0 = LoadAny(d16, source);
    const auto w1 = LoadAny(d16, source + hn::Lanes(ByteTag()));
    const auto y0 = hn::Sub(hn::And(w0, constants.no_sign), hn::BitCast(d16, hn::Set(d32, low0)));
    const auto y1 = hn::Sub(hn::And(w1, constants.no_sign), hn::BitCast(d16, hn::Set(d32, low1)));
    if (!hn::AllFalse(di16, hn::Lt(hn::BitCast(di16, hn::Or(y0, y1)), hn::Zero(di16)))) return false;

    const auto rounding0 = hn::OrAnd(constants.bias, hn::ShiftRight<4>(w0), constants.one);
    const auto rounding1 = hn::OrAnd(constants.bias, hn::ShiftRight<4>(w1), constants.one);
    const auto code0 = hn::ShiftRight<3>(hn::AverageRound(y0, rounding0));
    const auto with_sign0 = hn::OrAnd(code0, hn::ShiftRight<8>(w0), constants.sign);
    const auto high1 = hn::ShiftLeft<5>(hn::AverageRound(y1, rounding1));  // the code in the high byte
    const auto with_sign1 = Select(constants.no_sign, high1, w1);
    codes = constants.in_order(hn::BitCast(ByteTag(), Select(constants.even, with_sign0, with_sign1)));
    return true;
  }

 private:
  // Those of the smallest weight whose code is not a subnormal one, 2^-6 times the scale; where that is no normal bf16,
  // more than any weight has.
  static std::uint32_t LowestBits(std::uint8_t scale) { return scale < 7 ? 0x8000U : (std::uint32_t{scale} - 6) << 7; }

  std::uint32_t lowest_[kSmallBlockTile / kBlock] = {};  // of the blocks of a tile, twice in each
#endif
};

}  // namespace

bool Mxfp8Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) {
    return std::isfinite(SmallBlockPass<decltype(type), Mxfp8>(source, {}, scales, values).Encode());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Mxfp8Blocks);

bool Mxfp8Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values) {
  return HWY_DYNAMIC_DISPATCH(Mxfp8Blocks)(source, scales, values);
}

}  // namespace layercast
#endif
