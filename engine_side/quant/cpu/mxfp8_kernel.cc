#include "engine_side/quant/cpu/cpu_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/mxfp8_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/fp8_codes-inl.h"
#include "engine_side/quant/cpu/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

class Mxfp8 {
 public:
  static constexpr std::size_t kBlock = kMxBlock;
  static constexpr std::size_t kPerByte = 1;

  void MakeScales(const float* HWY_RESTRICT amax, std::size_t blocks, std::uint8_t* HWY_RESTRICT scales) const {
    for (std::size_t b = 0; b < blocks; ++b) scales[b] = MxExponent(amax[b], kMxfp8Element);
  }
  HWY_INLINE void MakeFactors(const std::uint8_t* scales, std::size_t blocks, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) factors[b] = MxFactor(scales[b]);
  }

  std::uint8_t One(float product) const { return EncodeE4M3(product); }

#if HWY_TARGET != HWY_SCALAR
  static constexpr bool kByBits = true;

  struct Constants {
    explicit HWY_INLINE Constants(const Mxfp8& format) : add(Keep(hn::LoadDup128(ByteTag(), format.table_.add))) {}
    TableCodes codes;
    hn::Vec<ByteTag> add;
  };

  template <class DF>
  HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> Encode(const Constants& /*constants*/, DF df, const Pairs<DF>& products,
                                                      hn::Vec<DF> /*factors*/) const {
    return E4M3(df, products, products);
  }

  void PrepareBits(const float* /*amax*/, const std::uint8_t* HWY_RESTRICT scales, std::size_t blocks) {
    std::uint8_t largest = 0;
    for (std::size_t b = 0; b < blocks; ++b) {
      largest = std::max(largest, scales[b]);
      offset_[b] = Offset(scales[b]) * 0x10001U;
    }
    by_table_ = largest <= kMaxScale;
  }

  // One table serves all scales, each of which has its own `first`; see fp8_table.h and TableCodes.
  HWY_INLINE bool CodesByBits(const Constants& constants, const std::byte* source, std::size_t first,
                              hn::Vec<ByteTag>& codes) const {
    if (!by_table_) return false;
    const hn::Repartition<std::uint32_t, ByteTag> d32;
    const TableCodes::D d;
    const std::size_t next = hn::Lanes(ByteTag()) / 2;
    const auto offset0 = hn::BitCast(d, hn::Set(d32, offset_[first / kBlock]));
    const auto offset1 = hn::BitCast(d, hn::Set(d32, offset_[(first + next) / kBlock]));
    const auto z0 = hn::Add(LoadAny(d, source), offset0);
    const auto z1 = hn::Add(LoadAny(d, source + 2 * next), offset1);
    if (HWY_UNLIKELY(!constants.codes.Hold(hn::And(z0, z1)))) return false;
    codes = constants.codes(constants.add, z0, z1);
    return true;
  }

 private:
  static constexpr unsigned kOne = 127;       // the scale 2^0, for which table_ is
  static constexpr unsigned kMinScale = 7;    // below, the smallest normal code is no normal bf16
  static constexpr unsigned kMaxScale = 246;  // above, TableCodes cannot tell small weights

  // Below kMinScale, one that never holds: weights are too small.
  std::uint16_t Offset(unsigned scale) const {
    if (scale < kMinScale) return 0;
    const unsigned first = table_.first + (scale << 7) - (kOne << 7);
    return static_cast<std::uint16_t>(TableCodes::Offset(static_cast<std::uint16_t>(first)));
  }

  TableUse table_ = FindTable(false, kFp8Max, 1.0F);
  bool by_table_ = false;                                // the table is used for all blocks of the tile
  std::uint32_t offset_[kSmallBlockTile / kBlock] = {};  // by block of the tile; in both halves of a word
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

bool CpuMxfp8(const QuantizeJob& job) {
  return HWY_DYNAMIC_DISPATCH(Mxfp8Blocks)(job.source, job.byte_scales(), job.codes());
}

}  // namespace layercast
#endif
