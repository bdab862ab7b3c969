#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/cpu/cpu_kernel.h"
#include "engine_side/quant/scales.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/mxfp4_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/fp4_codes-inl.h"
#include "engine_side/quant/cpu/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

class Mxfp4 {
 public:
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
  static constexpr bool kByBits = true;

  using DF = hn::Repartition<float, ByteTag>;
  using D16 = hn::RepartitionToWide<ByteTag>;

  struct Constants {
    explicit HWY_INLINE Constants(const Mxfp4& /*format*/) {}
    E2M1Constants<DF> e2m1;
    hn::Vec<D16> no_sign = Keep(hn::Set(D16(), std::uint16_t{0x7fff}));
    hn::Vec<D16> tie = Keep(hn::Set(D16(), std::uint16_t{1}));
    hn::Vec<D16> low_sign = Keep(hn::Set(D16(), std::uint16_t{8}));
    hn::Vec<D16> high_sign = Keep(hn::Set(D16(), std::uint16_t{0x800}));
    hn::Vec<ByteTag> code_one = Keep(hn::Set(ByteTag(), std::uint8_t{1}));
    hn::Vec<ByteTag> first_level = Keep(hn::Set(ByteTag(), kFirstLevel));
    hn::Vec<ByteTag> code_of_level = Keep(hn::LoadDup128(ByteTag(), kCodeOfLevel));
    CodesInOrder in_order;
  };

  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(const Constants& constants, DF /*df*/, const Pairs<DF>& products,
                                                      hn::Vec<DF> /*factors*/) const {
    return E2M1Pairs(constants.e2m1, products);
  }

  void PrepareBits(const float* HWY_RESTRICT amax, const std::uint8_t* HWY_RESTRICT scales, std::size_t blocks) {
    unsigned tiny = 0;  // blocks of zeros do not count: their level is 0 anyway
    for (std::size_t b = 0; b < blocks; ++b) {
      tiny |= static_cast<unsigned>(amax[b] > 0.0F) & static_cast<unsigned>(amax[b] <= kTiny);
    }
    by_levels_ = tiny == 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      origin_[b] = (kOrigin + (std::uint32_t{scales[b]} << 7) - (kOne << 7)) * 0x10001U;
    }
  }

  // Codes by the bits u of the magnitude. If the block's scale is taken from its exponent, u becomes the bits of the
  // product. The code changes only where u >> 5 does, at the ties 0.25, 0.75, 1.25, 1.75, 2.5, 3.5 and 5. Every other
  // one of these still belongs to the code below. Those have bit 6 clear, and the others have it set, so u - 1 + (u >>
  // 6 & 1) passes a tie exactly where the code changes. The level is this number in units of 32, counted from the level
  // below 0.25: 0 to 19.
  HWY_INLINE bool CodesByBits(const Constants& constants, const std::byte* source, std::size_t first,
                              hn::Vec<ByteTag>& codes) const {
    if (HWY_UNLIKELY(!by_levels_)) return false;
    const D16 d;
    const std::size_t lanes = hn::Lanes(d);
    const auto level = [&](hn::Vec<D16> w, std::size_t at) HWY_ATTR {
      const hn::Repartition<std::uint32_t, ByteTag> d32;
      const auto origin = hn::BitCast(d, hn::Set(d32, origin_[(first + at) / kBlock]));
      const auto above_tie = hn::Add(hn::And(w, constants.no_sign), hn::And(hn::ShiftRight<6>(w), constants.tie));
      return hn::ShiftRight<5>(hn::SaturatedSub(above_tie, origin));
    };
    const auto two = [&](std::size_t at) HWY_ATTR {  // the codes of two vectors take turns
      const auto one = LoadAny(d, source + 2 * at);
      const auto next = LoadAny(d, source + 2 * (at + lanes));
      const auto levels = hn::BitCast(ByteTag(), hn::Or(level(one, at), hn::ShiftLeft<8>(level(next, at + lanes))));
      const auto above = hn::TableLookupBytesOr0(constants.code_of_level, hn::Sub(levels, constants.first_level));
      const auto code = hn::Max(above, hn::Min(levels, constants.code_one));
      const auto signs = hn::Or(hn::And(hn::ShiftRight<12>(one), constants.low_sign),
                                hn::And(hn::ShiftRight<4>(next), constants.high_sign));
      return hn::Or(hn::BitCast(d, code), signs);
    };
    codes = constants.in_order(two(0), two(2 * lanes));
    return true;
  }

 private:
  static constexpr unsigned kOne = 127;             // the scale 2^0
  static constexpr float kTiny = 0x1.8p-123F;       // up to this amax, subnormal bf16 may have codes other than 0
  static constexpr std::uint32_t kOrigin = 0x3e61;  // the bits of 0.25, less a level (32), and the 1 of `u - 1`
  static constexpr std::uint8_t kFirstLevel = 4;    // the first in the table; below it codes are 1, and 0 at level 0
  alignas(16) static constexpr std::uint8_t kCodeOfLevel[16] = {1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7};

  bool by_levels_ = false;                               // levels are used for all blocks of the tile
  std::uint32_t origin_[kSmallBlockTile / kBlock] = {};  // by block of the tile; in both halves of a word
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

bool CpuMxfp4(const QuantizeJob& job) {
  return HWY_DYNAMIC_DISPATCH(Mxfp4Blocks)(job.source, job.byte_scales(), job.codes());
}

}  // namespace layercast
#endif
