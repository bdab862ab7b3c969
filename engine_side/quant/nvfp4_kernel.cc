#include "engine_side/quant/kernels.h"

#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

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

  explicit Nvfp4(float amax) : global_(Nvfp4GlobalFactor(amax)) {}

  std::uint8_t One(float product) const { return EncodeE2M1(product); }

#if HWY_TARGET == HWY_SCALAR
  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) {
      scales[b] = EncodeE4M3(global_ * (amax[b] / kFp4Max));
      factors[b] = scales[b] == 0 ? 0.0F : global_ / static_cast<float>(DecodeElement(DType::kF8E4M3, scales[b]));
    }
  }
#else
  // sf = cvt(g * (amax / 6)), factor = g / sf. Whole vectors: both arrays are longer than they need be.
  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales, float* factors) const {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    HWY_ALIGN std::uint32_t codes[16];
    const auto global = hn::Set(df, global_);
    for (std::size_t first = 0; first < blocks; first += hn::Lanes(df)) {
      const auto sixth = hn::Div(hn::Load(df, amax + first), hn::Set(df, kFp4Max));
      const auto code = hn::And(E4M3(df, hn::Mul(global, sixth)), hn::Set(du, 0x7fU));
      // A code moved to fp32's place, subnormals too, is its value times 2^-120.
      const auto value = hn::Mul(hn::BitCast(df, hn::ShiftLeft<20>(code)), hn::Set(df, 0x1p120F));
      hn::Store(hn::IfThenZeroElse(hn::Eq(value, hn::Zero(df)), hn::Div(global, value)), df, factors + first);
      hn::Store(code, du, codes);
      const std::size_t count = std::min(hn::Lanes(df), blocks - first);
      for (std::size_t i = 0; i < count; ++i) scales[first + i] = static_cast<std::uint8_t>(codes[i]);
    }
  }

  // The same way as for FP8: E = 2^max(exponent of p, 0), t = E * (2^22 + 3) + p has the unit 2^(exponent - 1), that
  // of e2m1's mantissa (0.5 for its subnormal), and (bits(t) + (bits(t) >> 22)) & 7 is the code.
  template <class DF>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF> > E2M1(DF df, hn::Vec<DF> magnitude) const {
    const hn::RebindToUnsigned<DF> du;
    const auto p = hn::Min(magnitude, hn::Set(df, kFp4Max));
    const auto exponent = hn::And(hn::BitCast(du, p), hn::Set(du, 0x7f800000U));
    const auto power = hn::BitCast(df, hn::Max(exponent, hn::Set(du, 127U << 23)));
    const auto t = hn::BitCast(du, hn::MulAdd(power, hn::Set(df, 4194304.0F + 3.0F), p));
    return hn::Add(t, hn::ShiftRight<22>(t));
  }

  template <class DF>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF> > Encode(DF df, const Pairs<DF>& products, hn::Vec<DF> factors) const {
    const hn::RebindToUnsigned<DF> du;
    const auto even = E2M1(df, hn::Abs(products.even));
    const auto odd = E2M1(df, hn::Abs(products.odd));
    const auto even_sign = hn::ShiftRight<28>(hn::BitCast(du, products.even));
    const auto odd_sign = hn::ShiftRight<24>(hn::BitCast(du, products.odd));
    const auto low = Select(hn::Set(du, 7U), even, even_sign);  // and garbage above
    const auto high = Select(hn::Set(du, 0x70U), hn::ShiftLeft<4>(odd), odd_sign);
    const auto both = hn::And(Select(hn::Set(du, 0xfU), low, high), hn::Set(du, 0xffU));
    return hn::BitCast(du, hn::IfThenElseZero(hn::Ne(factors, hn::Zero(df)), hn::BitCast(df, both)));
  }
#endif

 private:
  float global_;
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
