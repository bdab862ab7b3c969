// The pass of recipes with one scale for each block of a few columns of a row. Included by their kernels once for each
// instruction set. A stretch of a row is scanned, and then encoded while it is in the first-level cache.
//
// A format says what becomes of a block. `kBlock` is its columns, and `kPerByte` the values in a byte. MakeScales(amax,
// blocks, scales) turns largest magnitudes into the scales to store (a byte each), and MakeFactors(scales, blocks,
// factors) turns these into factors to multiply by. Encode(constants, df, products, factors) gives two codes in the low
// bits of each 32-bit lane, 16 / kPerByte bits in all, and One(product) gives a single code. A block whose factor is 0
// has codes of 0. Constants(format) stay in registers.
//
// A format with `kByBits` has a faster way for most bf16 weights. PrepareBits(amax, scales, blocks) is called for a
// tile; then CodesByBits(constants, source, first, codes) encodes a vector of bytes from the tile's element `first` on,
// or returns false.
#if defined(LAYERCAST_SMALL_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_SMALL_BLOCKS_INL_H_
#undef LAYERCAST_SMALL_BLOCKS_INL_H_
#else
#define LAYERCAST_SMALL_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "engine_side/quant/cpu/chunk_pass-inl.h"
#include "engine_side/quant/cpu/source-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

// The elements of a tile: a page of bf16. The prefetcher is as far ahead, so the scan finds the whole tile in the
// cache.
inline constexpr std::size_t kSmallBlockTile = 2048;

#if HWY_TARGET != HWY_SCALAR

// Lane i of the result is the largest lane of v[i]. There are as many vectors as a vector has lanes.
template <class D, std::size_t kVectors>
HWY_INLINE hn::Vec<D> LargestOfEach(D d, hn::Vec<D> (&v)[kVectors]) {
  for (std::size_t n = kVectors / 2; n > 0; n /= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = hn::Max(hn::InterleaveLower(d, v[i], v[i + n]), hn::InterleaveUpper(d, v[i], v[i + n]));
    }
  }
  return v[0];
}

// Lane i of the result is the largest of the lanes i of all 128-bit blocks.
template <class D, class V>
HWY_INLINE auto LargestOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return LargestOfBlocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

#endif

template <class Type, class Format>
class SmallBlockPass {
 public:
  SmallBlockPass(const MatrixView& source, const Format& format, std::uint8_t* scales, std::uint8_t* values)
      : source_(source), format_(format), scales_(scales), values_(values), prefetcher_(PagesOf(Type{}, source)) {}

  // Encodes the source, and returns its largest magnitude: NaN or infinity if there is one.
  float Encode() {
    const auto cols = static_cast<std::size_t>(source_.cols);
    const Constants constants(format_);
    std::uint8_t* scales = scales_;
    std::uint8_t* values = values_;
    for (std::int64_t r = 0; r < source_.rows; ++r) {
      for (std::size_t c = 0; c < cols; c += kTile) {
        const std::size_t count = std::min(kTile, cols - c);
        EncodeTile(constants, source_.row(r) + c * kSize, count, scales, values);
        scales += count / kBlock;
        values += count / Format::kPerByte;
      }
    }
    return Type::ToFloat(largest_);
  }

 private:
  using Bits = typename Type::Bits;
  static constexpr std::size_t kSize = sizeof(Bits);
  static constexpr std::size_t kBlock = Format::kBlock;
  static constexpr std::size_t kTile = kSmallBlockTile;                                           // elements
  static constexpr std::size_t kUnit = std::max<std::size_t>(8 * kBlock, 64 * Format::kPerByte);  // divides a tile
  static constexpr std::size_t kBlocks = kTile / kBlock;
  static_assert(kTile % kUnit == 0);

#if HWY_TARGET == HWY_SCALAR
  static constexpr bool kByBits = false;
  struct Constants {
    explicit Constants(const Format& /*format*/) {}
  };
#else
  static constexpr bool kByBits = Format::kByBits && std::is_same_v<Type, BF16>;
  using DF = hn::Repartition<float, ByteTag>;
  struct Constants {
    explicit HWY_INLINE Constants(const Format& of) : format(of) {}
    hn::Vec<hn::RebindToUnsigned<DF> > high_half = Keep(HighHalf(DF()));
    typename Format::Constants format;
  };
#endif

  // Encodes a tile. If it is not a multiple of kUnit, it is padded with zeros.
  void EncodeTile(const Constants& constants, const std::byte* source, std::size_t count, std::uint8_t* scales,
                  std::uint8_t* values) {
    if (count % kUnit == 0) return EncodeUnits(constants, source, count, scales, values);
    HWY_ALIGN std::byte padded[kTile * kSize] = {};
    HWY_ALIGN std::uint8_t padded_values[kTile];
    std::uint8_t padded_scales[kBlocks];
    std::memcpy(padded, source, count * kSize);
    EncodeUnits(constants, padded, (count + kUnit - 1) / kUnit * kUnit, padded_scales, padded_values);
    std::memcpy(scales, padded_scales, count / kBlock);
    std::memcpy(values, padded_values, count / Format::kPerByte);
  }

#if HWY_TARGET == HWY_SCALAR
  void EncodeUnits(const Constants& /*constants*/, const std::byte* source, std::size_t count, std::uint8_t* scales,
                   std::uint8_t* values) {
    std::memset(values, 0, count / Format::kPerByte);
    for (std::size_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, source + i * kSize, kSize);
      const Bits magnitude = bits & Type::kNoSign;
      maxima_[i / kBlock] = i % kBlock == 0 ? magnitude : std::max(maxima_[i / kBlock], magnitude);
    }
    MakeScales(count / kBlock, scales);
    MakeFactors();
    for (std::size_t i = 0; i < count; ++i) {
      const float factor = factors_[i / kBlock];
      const auto w = static_cast<float>(ElementValue(Type::kDType, source, static_cast<std::int64_t>(i)));
      const unsigned code = factor == 0.0F ? 0U : format_.One(w * factor);
      values[i / Format::kPerByte] |= static_cast<std::uint8_t>(code << 8 / Format::kPerByte * (i % Format::kPerByte));
    }
  }
#else
  void EncodeUnits(const Constants& constants, const std::byte* source, std::size_t count, std::uint8_t* scales,
                   std::uint8_t* values) {
    ScanUnits(source, count);
    MakeScales(count / kBlock, scales);
    const bool stream = reinterpret_cast<std::uintptr_t>(values) % kChunk == 0;
    const ByteTag d8;
    const std::size_t step = hn::Lanes(d8) * Format::kPerByte;  // elements
    for (std::size_t i = 0; i < count; i += kChunk * Format::kPerByte) {
      for (std::size_t at = 0; at < kChunk * Format::kPerByte * kSize; at += kPrefetchStep) prefetcher_.Next();
      for (std::size_t j = i; j < i + kChunk * Format::kPerByte; j += step) {
        const auto codes = Codes(constants, source, j);
        if (stream) {
          hn::Stream(codes, d8, values + j / Format::kPerByte);
        } else {
          hn::StoreU(codes, d8, values + j / Format::kPerByte);
        }
      }
    }
  }

  void ScanUnits(const std::byte* source, std::size_t count) {
    const hn::CappedTag<Bits, kBlock> d;
    constexpr std::size_t kGroup = 16 / kSize;  // blocks
    const auto no_sign = hn::Set(d, Type::kNoSign);
    for (std::size_t first = 0; first < count / kBlock; first += kGroup) {
      hn::Vec<decltype(d)> max[kGroup];
      for (std::size_t b = 0; b < kGroup; ++b) {
        const std::byte* block = source + (first + b) * kBlock * kSize;
        max[b] = hn::And(LoadAny(d, block), no_sign);
        for (std::size_t i = hn::Lanes(d); i < kBlock; i += hn::Lanes(d)) {
          max[b] = hn::Max(max[b], hn::And(LoadAny(d, block + i * kSize), no_sign));
        }
      }
      hn::Store(LargestOfBlocks(d, LargestOfEach(d, max)), hn::Full128<Bits>(), maxima_ + first);
    }
  }

  // A vector of bytes with the codes from element `first` on.
  HWY_INLINE hn::Vec<ByteTag> Codes(const Constants& constants, const std::byte* source, std::size_t first) {
    if constexpr (kByBits) {
      hn::Vec<ByteTag> codes;
      if (HWY_LIKELY(format_.CodesByBits(constants.format, source + first * kSize, first, codes))) return codes;
    }
    return CodesByProducts(constants, source, first);
  }

  HWY_INLINE hn::Vec<ByteTag> CodesByProducts(const Constants& constants, const std::byte* source, std::size_t first) {
    MakeFactors();
    const ByteTag d8;
    const hn::RepartitionToWide<ByteTag> d16;
    const auto pairs = [&](std::size_t part) HWY_ATTR {  // of 2 x Lanes(df) elements
      const DF df;
      const std::size_t at = first + part * 2 * hn::Lanes(df);
      const Pairs<DF> w = LoadPairs(Type{}, df, source + at * kSize, constants.high_half);
      const auto factors = Factors(at);
      const Pairs<DF> products = {hn::Mul(w.even, factors), hn::Mul(w.odd, factors)};
      return hn::BitCast(d16, format_.Encode(constants.format, df, products, factors));
    };
    const auto low = hn::ConcatEven(d16, pairs(1), pairs(0));
    if constexpr (Format::kPerByte == 1) return hn::BitCast(d8, low);
    const auto high = hn::ConcatEven(d16, pairs(3), pairs(2));
    return hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low));
  }

  // The factors for the pairs of elements from `at` on. They belong to one block, or to two blocks in half a vector
  // each.
  HWY_INLINE hn::Vec<DF> Factors(std::size_t at) const {
    const DF df;
    const float* factors = factors_ + at / kBlock;
    if constexpr (2 * hn::MaxLanes(df) <= kBlock) {
      return hn::Set(df, factors[0]);
    } else {
      const hn::Half<DF> half;
      return hn::Combine(df, hn::Set(half, factors[1]), hn::Set(half, factors[0]));
    }
  }
#endif

  void MakeScales(std::size_t blocks, std::uint8_t* scales) {
    for (std::size_t b = 0; b < blocks; ++b) {
      largest_ = std::max(largest_, maxima_[b]);
      amax_[b] = Type::ToFloat(maxima_[b]);
    }
    format_.MakeScales(amax_, blocks, scales);
    if constexpr (kByBits) format_.PrepareBits(amax_, scales, blocks);
    factors_made_ = false;
    tile_scales_ = {scales, blocks};
  }

  // Makes the tile's factors, which the faster ways do not need. It is inlined, because a call in a loop costs all
  // vector registers.
  HWY_INLINE void MakeFactors() {
    if (factors_made_) return;
    format_.MakeFactors(tile_scales_.data(), tile_scales_.size(), factors_);
    factors_made_ = true;
  }

  MatrixView source_;
  Format format_;
  std::uint8_t* scales_;
  std::uint8_t* values_;
  PagePrefetcher prefetcher_;
  Bits largest_ = 0;
  HWY_ALIGN Bits maxima_[kBlocks] = {};  // the largest magnitudes of the tile's blocks, as bits
  HWY_ALIGN float amax_[kBlocks] = {};   // the same magnitudes as numbers
  std::span<const std::uint8_t> tile_scales_;
  bool factors_made_ = false;
  HWY_ALIGN float factors_[kBlocks] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
