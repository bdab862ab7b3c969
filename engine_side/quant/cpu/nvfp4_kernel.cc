#include "engine_side/quant/cpu/cpu_kernel.h"

#include <algorithm>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/nvfp4_table.h"
#include "engine_side/quant/scales.h"
#include "src/tensor/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/nvfp4_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/fp4_codes-inl.h"
#include "engine_side/quant/cpu/fp8_codes-inl.h"
#include "engine_side/quant/cpu/small_blocks-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

class Nvfp4 {
 public:
  static constexpr std::size_t kBlock = kNvfp4Block;
  static constexpr std::size_t kPerByte = 2;

  explicit Nvfp4(float amax) : global_(Nvfp4GlobalFactor(amax)), table_(global_) {}

  std::uint8_t One(float product) const { return EncodeE2M1(product); }

  // sf = cvt(g * (amax / 6))
#if HWY_TARGET == HWY_SCALAR
  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales) const {
    for (std::size_t b = 0; b < blocks; ++b) scales[b] = EncodeE4M3(global_ * (amax[b] / kFp4Max)) & 0x7fU;
  }
#else
  // Works on whole vectors: the array is longer than needed.
  void MakeScales(const float* amax, std::size_t blocks, std::uint8_t* scales) const {
    const hn::CappedTag<float, 16> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    HWY_ALIGN std::uint32_t codes[kSmallBlockTile / kBlock];
    for (std::size_t first = 0; first < blocks; first += hn::Lanes(df)) {
      const auto sixth = hn::Div(hn::LoadU(df, amax + first), hn::Set(df, kFp4Max));
      const auto code = E4M3(df, hn::Mul(hn::Set(df, global_), sixth));
      hn::StoreU(hn::And(code, hn::Set(du, 0x7fU)), du, codes + first);
    }
    for (std::size_t b = 0; b < blocks; ++b) scales[b] = static_cast<std::uint8_t>(codes[b]);
  }
#endif

  HWY_INLINE void MakeFactors(const std::uint8_t* scales, std::size_t blocks, float* factors) const {
    for (std::size_t b = 0; b < blocks; ++b) factors[b] = table_.factor[scales[b]];
  }

#if HWY_TARGET != HWY_SCALAR
  static constexpr bool kByBits = true;
  using DF = hn::Repartition<float, ByteTag>;
  using DU = hn::RebindToUnsigned<DF>;
  using D16 = hn::RepartitionToWide<ByteTag>;

  struct Constants {
    explicit HWY_INLINE Constants(const Nvfp4& /*format*/) {}
    E2M1Constants<DF> e2m1;
    hn::Vec<D16> no_sign = Keep(hn::Set(D16(), std::uint16_t{0x7fff}));
    hn::Vec<D16> in_group = Keep(hn::Set(D16(), std::uint16_t{31}));
    hn::Vec<D16> code = Keep(hn::Set(D16(), std::uint16_t{7}));
    hn::Vec<D16> sign = Keep(hn::Set(D16(), std::uint16_t{8}));
    CodesInOrder in_order;
  };

  // The two codes are in the low 8 bits of each lane; the other bits are garbage.
  HWY_INLINE hn::Vec<DU> Encode(const Constants& constants, DF df, const Pairs<DF>& products,
                                hn::Vec<DF> factors) const {
    const auto both = hn::BitCast(df, E2M1Pairs(constants.e2m1, products));
    return hn::BitCast(DU(), hn::IfThenElseZero(hn::Ne(factors, hn::Zero(df)), both));
  }

  void PrepareBits(const float* /*amax*/, const std::uint8_t* scales, std::size_t blocks) {
    std::uint8_t smallest = Nvfp4Table::kScaleCodes;
    std::uint8_t smallest_less_1 = Nvfp4Table::kScaleCodes;  // 0 wraps to the largest, and so does not count
    for (std::size_t b = 0; b < blocks; ++b) {
      smallest = std::min(smallest, scales[b]);
      smallest_less_1 = std::min(smallest_less_1, static_cast<std::uint8_t>(scales[b] - 1));
    }
    by_table_ = smallest_less_1 >= table_.min_code - 1;
    zero_blocks_ = smallest == 0;
    scales_ = scales;
  }

  HWY_INLINE bool CodesByBits(const Constants& constants, const std::byte* source, std::size_t first,
                              hn::Vec<ByteTag>& codes) const {
    if (!by_table_) return false;
    codes = HWY_UNLIKELY(zero_blocks_) ? CodesByTable<true>(constants, source, first)
                                       : CodesByTable<false>(constants, source, first);
    return true;
  }
#endif

 private:
#if HWY_TARGET != HWY_SCALAR
  // Calls part(tag, scale's code) for each block to which a vector of 16-bit lanes belongs: one block, or two in a half
  // each.
  template <class Part>
  HWY_INLINE hn::Vec<D16> OfBlocks(const std::uint8_t* scales, const Part& part) const {
    if constexpr (hn::MaxLanes(D16()) <= kBlock) {
      return hn::BitCast(D16(), part(DU(), scales[0]));
    } else {
      const hn::Half<DU> half;
      return hn::BitCast(D16(), hn::Combine(DU(), part(half, scales[1]), part(half, scales[0])));
    }
  }

  template <bool kZeroBlocks>
  HWY_INLINE hn::Vec<ByteTag> CodesByTable(const Constants& constants, const std::byte* source,
                                           std::size_t first) const {
    const auto code = [&](std::size_t at)
                          HWY_ATTR { return CodeByTable<kZeroBlocks>(constants, source + 2 * at, first + at); };
    const auto two = [&](std::size_t part) HWY_ATTR {
      const std::size_t at = part * hn::Lanes(D16());
      return hn::Or(code(at), hn::ShiftLeft<8>(code(at + hn::Lanes(D16()))));
    };
    return constants.in_order(two(0), two(2));
  }

  // The codes of a vector, four bits in each lane; see nvfp4_table.h. High bytes are garbage until `code` is masked.
  template <bool kZeroBlocks>
  HWY_INLINE hn::Vec<D16> CodeByTable(const Constants& constants, const std::byte* source, std::size_t at) const {
    const D16 d;
    const auto w = LoadAny(d, source);
    const auto magnitude = hn::And(w, constants.no_sign);
    const std::uint8_t* scales = scales_ + at / kBlock;
    const auto origin =
        OfBlocks(scales, [&](auto du, std::uint8_t c) HWY_ATTR { return hn::Set(du, table_.origin[c]); });
    const auto first =
        OfBlocks(scales, [&](auto du, std::uint8_t c) HWY_ATTR { return hn::Set(du, table_.below_first[c]); });
    const auto steps = OfBlocks(scales, [&](auto du, std::uint8_t c) HWY_ATTR {
      const hn::Repartition<std::uint8_t, decltype(du)> d8;
      return hn::BitCast(du, hn::LoadDup128(d8, table_.steps[c % Nvfp4Table::kMantissas]));
    });
    const auto above = hn::SaturatedSub(magnitude, origin);
    const auto group = hn::BitCast(ByteTag(), hn::ShiftRight<5>(above));
    const auto step = hn::TableLookupBytes(hn::BitCast(ByteTag(), steps), group);
    const auto sum = hn::Add(hn::BitCast(d, step), hn::And(above, constants.in_group));
    const auto code = hn::And(hn::ShiftRight<5>(sum), constants.code);
    const auto reached = hn::SaturatedSub(magnitude, first);
    auto sign = constants.sign;
    if constexpr (kZeroBlocks) sign = hn::IfThenZeroElse(hn::Eq(origin, hn::Set(d, Nvfp4Table::kNoOrigin)), sign);
    return hn::OrAnd(hn::Min(code, reached), hn::ShiftRight<12>(w), sign);
  }
#endif

  float global_;
  Nvfp4Table table_;
#if HWY_TARGET != HWY_SCALAR
  bool by_table_ = false;     // the table is used for all blocks of the tile
  bool zero_blocks_ = false;  // some of them have the scale 0
  const std::uint8_t* scales_ = nullptr;
#endif
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

bool CpuNvfp4(const QuantizeJob& job) {
  return HWY_DYNAMIC_DISPATCH(Nvfp4Blocks)(job.source, job.amax, job.byte_scales(), job.codes());
}

}  // namespace layercast
#endif
