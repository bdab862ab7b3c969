#include "engine_side/quant/kernels.h"

#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/tensor/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/nvfp4_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/fp8_codes-inl.h"
#include "engine_side/quant/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

class Nvfp4 {
 public:
  static constexpr std::size_t kBlock = kNvfp4Block;
  static constexpr std::size_t kPerByte = 2;

  explicit Nvfp4(float amax) : global_(Nvfp4GlobalFactor(amax)) {
    for (std::size_t code = 1; code < kCodes - 1; ++code) {  // 0 stays 0; the last is NaN
      factor_of_[code] = global_ / static_cast<float>(DecodeElement(DType::kF8E4M3, code));
    }
  }

  std::uint8_t One(float product) const { return EncodeE2M1(product); }

  // sf = cvt(g * (amax / 6)), factor = g / sf; 0 for 0.
  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales, float* factors) const {
    std::uint32_t codes[kMaxBlocks];
    MakeCodes(amax, blocks, codes);
    for (std::size_t b = 0; b < blocks; ++b) {
      scales[b] = static_cast<std::uint8_t>(codes[b]);
      factors[b] = factor_of_[codes[b]];
    }
  }

#if HWY_TARGET != HWY_SCALAR
  static constexpr bool kByBits = false;
  using DF = hn::Repartition<float, ByteTag>;
  using DU = hn::RebindToUnsigned<DF>;

  struct Constants {
    HWY_INLINE Constants() {}
    hn::Vec<DF> largest = Keep(hn::Set(DF(), kFp4Max));
    hn::Vec<DU> exponent = Keep(hn::Set(DU(), 0x7f800000U));
    hn::Vec<DU> one = Keep(hn::Set(DU(), 127U << 23));
    hn::Vec<DF> unit = Keep(hn::Set(DF(), 4194304.0F + 3.0F));
    hn::Vec<DU> low_code = Keep(hn::Set(DU(), 7U));
    hn::Vec<DU> high_code = Keep(hn::Set(DU(), 0x70U));
    hn::Vec<DU> low_half = Keep(hn::Set(DU(), 0xfU));
  };

  // Garbage in all but the low 8 bits.
  HWY_INLINE hn::Vec<DU> Encode(const Constants& constants, DF df, const Pairs<DF>& products,
                                hn::Vec<DF> factors) const {
    const DU du;
    const auto even = E2M1(constants, hn::Abs(products.even));
    const auto odd = E2M1(constants, hn::Abs(products.odd));
    const auto even_sign = hn::ShiftRight<28>(hn::BitCast(du, products.even));
    const auto odd_sign = hn::ShiftRight<24>(hn::BitCast(du, products.odd));
    const auto low = Select(constants.low_code, even, even_sign);
    const auto high = Select(constants.high_code, hn::ShiftLeft<4>(odd), odd_sign);
    const auto both = hn::BitCast(df, Select(constants.low_half, low, high));
    return hn::BitCast(du, hn::IfThenElseZero(hn::Ne(factors, hn::Zero(df)), both));
  }
#endif

 private:
  static constexpr std::size_t kCodes = 128;     // without the sign
  static constexpr std::size_t kMaxBlocks = 64;  // of MakeScales

#if HWY_TARGET == HWY_SCALAR
  void MakeCodes(const float* amax, std::size_t blocks, std::uint32_t* codes) const {
    for (std::size_t b = 0; b < blocks; ++b) codes[b] = EncodeE4M3(global_ * (amax[b] / kFp4Max)) & 0x7fU;
  }
#else
  // Whole vectors: both arrays are longer than they need be.
  void MakeCodes(const float* amax, std::size_t blocks, std::uint32_t* codes) const {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    for (std::size_t first = 0; first < blocks; first += hn::Lanes(df)) {
      const auto sixth = hn::Div(hn::LoadU(df, amax + first), hn::Set(df, kFp4Max));
      const auto code = E4M3(df, hn::Mul(hn::Set(df, global_), sixth));
      hn::StoreU(hn::And(code, hn::Set(du, 0x7fU)), du, codes + first);
    }
  }

  // The same way as for FP8: E = 2^max(exponent of p, 0), t = E * (2^22 + 3) + p has the unit 2^(exponent - 1), that
  // of e2m1's mantissa (0.5 for its subnormal), and (bits(t) + (bits(t) >> 22)) & 7 is the code.
  HWY_INLINE hn::Vec<DU> E2M1(const Constants& constants, hn::Vec<DF> magnitude) const {
    const auto p = hn::Min(magnitude, constants.largest);
    const auto exponent = hn::And(hn::BitCast(DU(), p), constants.exponent);
    const auto power = hn::BitCast(DF(), hn::Max(exponent, constants.one));
    const auto t = hn::BitCast(DU(), hn::MulAdd(power, constants.unit, p));
    return hn::Add(t, hn::ShiftRight<22>(t));
  }
#endif

  float global_;
  float factor_of_[kCodes] = {};
};

}  // namespace

bool Nvfp4Blocks(const MatrixView& source, float amax, std::uint8_t* scales, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) {
    return SmallBlockPass<decltype(type), Nvfp4>(source, Nvfp4(amax), scales, values).Encode() <= amax;
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Nvfp4Blocks);

bool Nvfp4Blocks(const MatrixView& source, float amax, std::uint8_t* scales, std::uint8_t* values) {
  return HWY_DYNAMIC_DISPATCH(Nvfp4Blocks)(source, amax, scales, values);
}

}  // namespace layercast
#endif
