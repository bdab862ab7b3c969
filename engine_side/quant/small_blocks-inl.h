// Blocks of a few columns of one row with a scale each, on one instruction set; included by the kernels of such
// recipes once for each. A stretch of a row is scanned, then encoded, while it is in the first-level cache.
//
// A format says what is made of a block: `kBlock`, its columns, `kPerByte` values in a byte; MakeScales(amax, blocks,
// scales, factors) turns largest magnitudes into the scales to store (a byte each) and the factors to multiply by;
// Encode(df, products, factors) gives two codes in the low bits of each 32-bit lane, 16 / kPerByte bits in all;
// One(product) a single code. A block whose factor is 0 has codes of 0.
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

#include "engine_side/quant/chunk_pass-inl.h"
#include "engine_side/quant/source-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Lane i of the result is the largest lane of v[i], for as many vectors as they have lanes.
template <class D, std::size_t kVectors>
HWY_INLINE hn::Vec<D> LargestOfEach(D d, hn::Vec<D> (&v)[kVectors]) {
  for (std::size_t n = kVectors / 2; n > 0; n /= 2) {
    for (std::size_t i = 0; i < n; ++i) {
      v[i] = hn::Max(hn::InterleaveLower(d, v[i], v[i + n]), hn::InterleaveUpper(d, v[i], v[i + n]));
    }
  }
  return v[0];
}

#endif

template <class Type, class Format>
class SmallBlockPass {
 public:
  SmallBlockPass(const MatrixView& source, const Format& format, std::uint8_t* scales, std::uint8_t* values)
      : source_(source), format_(format), scales_(scales), values_(values), prefetcher_(PagesOf(Type{}, source)) {}

  // The largest magnitude of all; NaN or infinity if there is one.
  float Encode() {
    const auto cols = static_cast<std::size_t>(source_.cols);
    std::uint8_t* scales = scales_;
    std::uint8_t* values = values_;
    for (std::int64_t r = 0; r < source_.rows; ++r) {
      for (std::size_t c = 0; c < cols; c += kTile) {
        const std::size_t count = std::min(kTile, cols - c);
        EncodeTile(source_.row(r) + c * kSize, count, scales, values);
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
  static constexpr std::size_t kTile = 1024;                                                      // elements
  static constexpr std::size_t kUnit = std::max<std::size_t>(8 * kBlock, 64 * Format::kPerByte);  // of tiles
  static constexpr std::size_t kBlocks = kTile / kBlock;
  static_assert(kTile % kUnit == 0);

  // A tile that is no multiple of the unit is padded with zeros.
  void EncodeTile(const std::byte* source, std::size_t count, std::uint8_t* scales, std::uint8_t* values) {
    if (count % kUnit == 0) return EncodeUnits(source, count, scales, values);
    HWY_ALIGN std::byte padded[kTile * kSize] = {};
    HWY_ALIGN std::uint8_t padded_values[kTile];
    std::uint8_t padded_scales[kBlocks];
    std::memcpy(padded, source, count * kSize);
    EncodeUnits(padded, (count + kUnit - 1) / kUnit * kUnit, padded_scales, padded_values);
    std::memcpy(scales, padded_scales, count / kBlock);
    std::memcpy(values, padded_values, count / Format::kPerByte);
  }

#if HWY_TARGET == HWY_SCALAR
  void EncodeUnits(const std::byte* source, std::size_t count, std::uint8_t* scales, std::uint8_t* values) {
    std::memset(values, 0, count / Format::kPerByte);
    for (std::size_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, source + i * kSize, kSize);
      const Bits magnitude = bits & Type::kNoSign;
      maxima_[i / kBlock] = i % kBlock == 0 ? magnitude : std::max(maxima_[i / kBlock], magnitude);
    }
    MakeFactors(count / kBlock, scales);
    for (std::size_t i = 0; i < count; ++i) {
      const float factor = factors_[i / kBlock];
      const auto w = static_cast<float>(ElementValue(Type::kDType, source, static_cast<std::int64_t>(i)));
      const unsigned code = factor == 0.0F ? 0U : format_.One(w * factor);
      values[i / Format::kPerByte] |= static_cast<std::uint8_t>(code << 8 / Format::kPerByte * (i % Format::kPerByte));
    }
  }
#else
  void EncodeUnits(const std::byte* source, std::size_t count, std::uint8_t* scales, std::uint8_t* values) {
    ScanUnits(source, count);
    MakeFactors(count / kBlock, scales);
    SpreadFactors(count / kBlock);
    const bool stream = reinterpret_cast<std::uintptr_t>(values) % kChunk == 0;
    const hn::CappedTag<std::uint8_t, kChunk> d8;
    const std::size_t step = hn::Lanes(d8) * Format::kPerByte;  // elements
    for (std::size_t i = 0; i < count; i += step) {
      for (std::size_t bytes = 0; bytes < step * kSize / 2; bytes += kPrefetchStep) prefetcher_.Next();
      const auto codes = Codes(d8, source, i);
      std::uint8_t* to = values + i / Format::kPerByte;
      if (stream) {
        hn::Stream(codes, d8, to);
      } else {
        hn::StoreU(codes, d8, to);
      }
    }
  }

  // Half of the tile's prefetching is done here, half while it is encoded.
  void ScanUnits(const std::byte* source, std::size_t count) {
    const hn::Full128<Bits> d;
    constexpr std::size_t kLanes = 16 / kSize;
    const auto no_sign = hn::Set(d, Type::kNoSign);
    for (std::size_t first = 0; first < count / kBlock; first += kLanes) {
      hn::Vec<decltype(d)> max[kLanes];
      for (std::size_t b = 0; b < kLanes; ++b) {
        const std::byte* block = source + (first + b) * kBlock * kSize;
        max[b] = hn::And(LoadAny(d, block), no_sign);
        for (std::size_t i = kLanes; i < kBlock; i += kLanes) {
          max[b] = hn::Max(max[b], hn::And(LoadAny(d, block + i * kSize), no_sign));
        }
      }
      hn::StoreU(LargestOfEach(d, max), d, maxima_ + first);
      for (std::size_t bytes = 0; bytes < kLanes * kBlock * kSize / 2; bytes += kPrefetchStep) prefetcher_.Next();
    }
  }

  // Each block's factor once for every lane that holds two of its elements.
  void SpreadFactors(std::size_t blocks) {
    const hn::CappedTag<float, kBlock / 2> d;
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t i = 0; i < kBlock / 2; i += hn::Lanes(d)) {
        hn::Store(hn::Set(d, factors_[b]), d, spread_ + b * (kBlock / 2) + i);
      }
    }
  }

  // A vector of bytes from element `first` on.
  template <class D8>
  HWY_INLINE hn::Vec<D8> Codes(D8 d8, const std::byte* source, std::size_t first) const {
    const hn::RepartitionToWide<D8> d16;
    using DF = hn::Repartition<float, D8>;
    const DF df;
    const auto pairs = [&](std::size_t part) HWY_ATTR {  // of 2 x Lanes(df) elements
      const std::size_t at = first + part * 2 * hn::Lanes(df);
      const Pairs<DF> w = LoadPairs(Type{}, df, source + at * kSize);
      const auto factors = hn::LoadU(df, spread_ + at / 2);
      const Pairs<DF> products = {hn::Mul(w.even, factors), hn::Mul(w.odd, factors)};
      return hn::BitCast(d16, format_.Encode(df, products, factors));
    };
    const auto low = hn::ConcatEven(d16, pairs(1), pairs(0));
    if constexpr (Format::kPerByte == 1) return hn::BitCast(d8, low);
    const auto high = hn::ConcatEven(d16, pairs(3), pairs(2));
    return hn::ConcatEven(d8, hn::BitCast(d8, high), hn::BitCast(d8, low));
  }
#endif

  void MakeFactors(std::size_t blocks, std::uint8_t* scales) {
    for (std::size_t b = 0; b < blocks; ++b) {
      largest_ = std::max(largest_, maxima_[b]);
      amax_[b] = Type::ToFloat(maxima_[b]);
    }
    format_.MakeScales(amax_, blocks, scales, factors_);
  }

  MatrixView source_;
  Format format_;
  std::uint8_t* scales_;
  std::uint8_t* values_;
  PagePrefetcher prefetcher_;
  Bits largest_ = 0;
  HWY_ALIGN Bits maxima_[kBlocks] = {};  // of the tile's blocks, as bits
  HWY_ALIGN float amax_[kBlocks] = {};   // the same as numbers
  HWY_ALIGN float factors_[kBlocks] = {};
  HWY_ALIGN float spread_[kTile / 2] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
