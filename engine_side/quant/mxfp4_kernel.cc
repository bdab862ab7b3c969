#include <cmath>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/kernels.h"
#include "engine_side/quant/scales.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/mxfp4_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/fp4_codes-inl.h"
#include "engine_side/quant/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

struct Mxfp4 {
  static constexpr std::size_t kBlock = kMxBlock;
  static constexpr std::size_t kPerByte = 2;

  void MakeScales(const float* HWY_RESTRICT amax, std::size_t blocks, std::uint8_t* HWY_RESTRICT scales) const {
    for (std::size_t b = 0; b < blocks; ++b) scales[b] = MxExponent(amax[b], kMxfp4Element);
  }
  void MakeFactors(const std::uint8_t* scales, std::size_t blocks, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) factors[b] = MxFactor(scales[b]);
  }

  std::uint8_t One(float product) const { return EncodeE2M1(product); }

#if HWY_TARGET != HWY_SCALAR
  static constexpr bool kByBits = false;

  using DF = hn::Repartition<float, ByteTag>;
  struct Constants : E2M1Constants<DF> {
    explicit HWY_INLINE Constants(const Mxfp4& /*format*/) {}
  };

  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(const Constants& constants, DF /*df*/, const Pairs<DF>& products,
                                                      hn::Vec<DF> /*factors*/) const {
    return E2M1Pairs(constants, products);
  }
#endif
};

}  // namespace

bool Mxfp4Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) {
    return std::isfinite(SmallBlockPass<decltype(type), Mxfp4>(source, {}, scales, values).Encode());
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Mxfp4Blocks);

bool Mxfp4Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values) {
  return HWY_DYNAMIC_DISPATCH(Mxfp4Blocks)(source, scales, values);
}

}  // namespace layercast
#endif
