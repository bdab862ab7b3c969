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

struct Mxfp8 {
  static constexpr std::size_t kBlock = kMxfp8Block;
  static constexpr std::size_t kPerByte = 1;

  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) {
      scales[b] = MxExponent(amax[b]);
      factors[b] = MxFactor(scales[b]);
    }
  }

  std::uint8_t One(float product) const { return EncodeE4M3(product); }

#if HWY_TARGET != HWY_SCALAR
  template <class DF>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(DF df, const Pairs<DF>& products, hn::Vec<DF> /*factors*/) const {
    return E4M3(df, products, products);
  }
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
