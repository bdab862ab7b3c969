#include "engine_side/quant/fp8_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "engine_side/quant/fp8_scale.h"
#include "engine_side/quant/reference.h"
#include "src/base/check.h"
#include "src/tensor/element.h"
#include "src/tensor/page_prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/fp8_kernels.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/fp8_codes-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

constexpr DType DTypeOf(BF16 /*type*/) { return DType::kBF16; }
constexpr DType DTypeOf(F16 /*type*/) { return DType::kF16; }
constexpr DType DTypeOf(F32 /*type*/) { return DType::kF32; }

// The largest magnitude seen, lane by lane, as bits: NaN > infinity > every finite value.
template <class Type>
struct Maxima {
  using Bits = typename Type::Bits;
  static constexpr std::size_t kLanes = 64 / sizeof(Bits);
  HWY_ALIGN Bits lanes[kLanes] = {};

  float Amax() const {
    return static_cast<float>(DecodeElement(DTypeOf(Type{}), *std::max_element(lanes, lanes + kLanes)));
  }
};

template <Quotient By>
Scale ScaleOf(float amax, float scale) {
  return {scale, 1.0F / scale, FindTable(By == Quotient::kDivision, amax, scale)};
}

template <class Type, class D, class V = hn::Vec<D>>
HWY_INLINE V ScanChunk(Type /*type*/, D d, const std::byte* source, V max) {
  const auto no_sign = hn::Set(d, Type::kNoSign);
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    max = hn::Max(max, hn::And(LoadAny(d, source + i * sizeof(typename Type::Bits)), no_sign));
  }
  return max;
}

template <class Type, Quotient By>
HWY_INLINE void ConvertChunk(const std::byte* source, const Scale& scale, bool stream, std::uint8_t* values) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kChunk; ++i) {
    const auto w = static_cast<float>(ElementValue(DTypeOf(Type{}), source, static_cast<std::int64_t>(i)));
    values[i] = EncodeE4M3(By == Quotient::kDivision ? w / scale.scale : w * scale.reciprocal);
  }
  static_cast<void>(stream);
#else
  const hn::CappedTag<std::uint8_t, kChunk> d8;
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d8)) {
    const std::byte* from = source + i * sizeof(typename Type::Bits);
    hn::Vec<decltype(d8)> codes;
    bool done = false;
    if constexpr (std::is_same_v<Type, BF16>) {
      if (scale.by_table.table != nullptr) done = CodesByTable(Type{}, d8, from, scale.by_table, codes);
    }
    if (HWY_UNLIKELY(!done)) codes = Codes<By>(Type{}, d8, from, scale);
    if (stream) {
      hn::Stream(codes, d8, values + i);
    } else {
      hn::StoreU(codes, d8, values + i);
    }
  }
#endif
}

// What Run does; a null pointer is in the place of what is not wanted.
enum class Do { kScan, kConvert, kBoth };

// Scans `count` elements at `scan` and converts as many at `source`.
template <class Type, Quotient By, Do What, class Prefetcher>
HWY_INLINE void Run(std::size_t count, const std::byte* scan, Maxima<Type>& maxima, Prefetcher& prefetcher,
                    const std::byte* source, Scale scale, std::uint8_t* values) {
  constexpr std::size_t kSize = sizeof(typename Type::Bits);
  const bool stream = reinterpret_cast<std::uintptr_t>(values) % kChunk == 0;
  const hn::CappedTag<typename Type::Bits, Maxima<Type>::kLanes> d;
  auto max = hn::Load(d, maxima.lanes);
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    if constexpr (What != Do::kConvert) {
      for (std::size_t bytes = 0; bytes < kChunk * kSize; bytes += kPrefetchStep) prefetcher.Next();
      max = ScanChunk(Type{}, d, scan + i * kSize, max);
    }
    if constexpr (What != Do::kScan) ConvertChunk<Type, By>(source + i * kSize, scale, stream, values + i);
  }
  if (i < count) {  // the rest, padded with zeros
    HWY_ALIGN std::byte padded[kChunk * kSize] = {};
    if constexpr (What != Do::kConvert) {
      std::memcpy(padded, scan + i * kSize, (count - i) * kSize);
      max = ScanChunk(Type{}, d, padded, max);
    }
    if constexpr (What != Do::kScan) {
      std::memcpy(padded, source + i * kSize, (count - i) * kSize);
      HWY_ALIGN std::uint8_t codes[kChunk];
      ConvertChunk<Type, By>(padded, scale, false, codes);
      std::memcpy(values + i, codes, count - i);
    }
  }
  hn::Store(max, d, maxima.lanes);
}

MatrixPages PagesOf(const MatrixView& source, std::size_t element_bytes) {
  return {source.data, static_cast<std::size_t>(source.rows), static_cast<std::size_t>(source.cols) * element_bytes,
          static_cast<std::size_t>(source.row_stride)};
}

template <class Type>
bool WithScale(MatrixView source, float amax, float scale_of_all, std::uint8_t* values) {
  constexpr std::size_t kBytes = sizeof(typename Type::Bits);
  if (source.row_stride == source.cols * static_cast<std::int64_t>(kBytes)) {
    source.cols *= source.rows;
    source.rows = 1;
  }
  const Scale scale = ScaleOf<Quotient::kReciprocal>(amax, scale_of_all);
  PagePrefetcher prefetcher(PagesOf(source, kBytes));
  Maxima<Type> maxima;
  const auto cols = static_cast<std::size_t>(source.cols);
  for (std::int64_t r = 0; r < source.rows; ++r) {
    Run<Type, Quotient::kReciprocal, Do::kBoth>(cols, source.row(r), maxima, prefetcher, source.row(r), scale,
                                                values + r * source.cols);
  }
  return maxima.Amax() <= amax;
}

template <class Type>
bool Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  PagePrefetcher prefetcher(PagesOf(source, sizeof(typename Type::Bits)));
  const auto cols = static_cast<std::size_t>(source.cols);
  bool finite = true;
  Maxima<Type> next;
  Run<Type, Quotient::kDivision, Do::kScan>(cols, source.row(0), next, prefetcher, nullptr, {}, nullptr);
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const float amax = next.Amax();
    finite = finite && std::isfinite(amax);
    const Scale scale = ScaleOf<Quotient::kDivision>(amax, ChannelScale(amax));
    scales[static_cast<std::size_t>(r)] = scale.scale;
    std::uint8_t* row_values = values + r * source.cols;
    next = {};
    if (r + 1 < source.rows) {
      Run<Type, Quotient::kDivision, Do::kBoth>(cols, source.row(r + 1), next, prefetcher, source.row(r), scale,
                                                row_values);
    } else {
      Run<Type, Quotient::kDivision, Do::kConvert>(cols, nullptr, next, prefetcher, source.row(r), scale, row_values);
    }
  }
  return finite;
}

template <class Type>
bool RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales, std::uint8_t* values) {
  PagePrefetcher prefetcher(PagesOf(source, sizeof(typename Type::Bits)));
  const auto cols = static_cast<std::size_t>(source.cols);
  bool within = true;
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const Scale scale = ScaleOf<Quotient::kDivision>(amax[row], ChannelScale(amax[row]));
    scales[row] = scale.scale;
    Maxima<Type> maxima;
    Run<Type, Quotient::kDivision, Do::kBoth>(cols, source.row(r), maxima, prefetcher, source.row(r), scale,
                                              values + r * source.cols);
    within = within && maxima.Amax() <= amax[row];
  }
  return within;
}

// The pass over 128 x 128 blocks. It goes by tiles, one block high and some wide: while one tile is converted (from a
// cache), the next is scanned. Two tiles 8 blocks wide fit in the second-level cache of a server; a processor that
// would rather read on sequentially gets wider ones.
template <class Type>
class BlockPass {
 public:
  BlockPass(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values)
      : source_(source), power_of_two_(power_of_two), scales_(scales), values_(values) {
    blocks_per_row_ = (source.cols + kFp8Block - 1) / kFp8Block;
    const std::int64_t most = PagesAtOnce() == 1 ? kMaxTileBlocks : 8;
    tiles_per_row_ = (blocks_per_row_ + most - 1) / most;
    tile_blocks_ = (blocks_per_row_ + tiles_per_row_ - 1) / tiles_per_row_;
  }

  bool Convert() {
    Tile now;
    for (std::int64_t i = 0;; ++i) {
      const Tile next = TileAt(i);
      Step(now, next, TileAt(i + 1));
      if (next.rows == 0) return finite_;
      now = next;
      MakeScales(now);
    }
  }

 private:
  static constexpr std::int64_t kMaxTileBlocks = 32;
  static constexpr std::size_t kBytes = sizeof(typename Type::Bits);

  struct Tile {
    const std::byte* source = nullptr;
    std::uint8_t* values = nullptr;
    float* scales = nullptr;
    std::int64_t rows = 0;  // 0: past the end
    std::int64_t cols = 0;

    // Elements of block `block` in row `row`.
    std::size_t Count(std::int64_t row, std::int64_t block) const {
      return row < rows ? static_cast<std::size_t>(std::clamp(cols - block * kFp8Block, std::int64_t{0}, kFp8Block))
                        : 0;
    }
  };

  Tile TileAt(std::int64_t index) const {
    const std::int64_t row = index / tiles_per_row_ * kFp8Block;
    const std::int64_t block = index % tiles_per_row_ * tile_blocks_;
    const std::int64_t col = block * kFp8Block;
    if (row >= source_.rows || col >= source_.cols) return {};
    return {.source = source_.row(row) + col * static_cast<std::int64_t>(kBytes),
            .values = values_ + row * source_.cols + col,
            .scales = scales_ + row / kFp8Block * blocks_per_row_ + block,
            .rows = std::min(kFp8Block, source_.rows - row),
            .cols = std::min(tile_blocks_ * kFp8Block, source_.cols - col)};
  }

  // Rows `row` ... of `tile`, or the first ones of the tile after it.
  void Prefetch(const Tile& tile, const Tile& after, std::int64_t row) {
    const Tile& from = row < tile.rows ? tile : after;
    const std::int64_t first = row < tile.rows ? row : 0;
    if (from.rows == 0) return;
    prefetcher_.Start(static_cast<std::size_t>(from.cols) * kBytes, [&](std::size_t i) {
      return reinterpret_cast<std::uintptr_t>(from.source) +
             static_cast<std::uintptr_t>((first + static_cast<std::int64_t>(i)) * source_.row_stride);
    });
  }

  void Step(const Tile& now, const Tile& next, const Tile& after) {
    const auto group = static_cast<std::int64_t>(prefetcher_.count());
    maxima_ = {};
    for (std::int64_t r = 0; r < std::max(now.rows, next.rows); ++r) {
      if (r % group == 0) Prefetch(next, after, r + group);
      for (std::int64_t b = 0; b < tile_blocks_; ++b) StepBlock(now, next, r, b);
    }
  }

  HWY_INLINE void StepBlock(const Tile& now, const Tile& next, std::int64_t r, std::int64_t b) {
    const std::size_t convert = now.Count(r, b);
    const std::size_t scan = next.Count(r, b);
    const std::int64_t offset = r * source_.row_stride + b * kFp8Block * static_cast<std::int64_t>(kBytes);
    std::uint8_t* values = convert == 0 ? nullptr : now.values + r * source_.cols + b * kFp8Block;
    Maxima<Type>& maxima = maxima_[static_cast<std::size_t>(b)];
    const Scale& scale = tile_scales_[static_cast<std::size_t>(b)];
    constexpr auto kWhole = static_cast<std::size_t>(kFp8Block);
    constexpr Quotient kBy = Quotient::kReciprocal;
    if (convert == kWhole && scan == kWhole) {
      Run<Type, kBy, Do::kBoth>(kWhole, next.source + offset, maxima, prefetcher_, now.source + offset, scale, values);
      return;
    }
    if (scan > 0) {
      Run<Type, kBy, Do::kScan>(scan, next.source + offset, maxima, prefetcher_, nullptr, {}, nullptr);
    }
    if (convert > 0) {
      Run<Type, kBy, Do::kConvert>(convert, nullptr, maxima, prefetcher_, now.source + offset, scale, values);
    }
  }

  void MakeScales(const Tile& tile) {
    for (std::int64_t b = 0; tile.Count(0, b) > 0; ++b) {
      const auto block = static_cast<std::size_t>(b);
      const float amax = maxima_[block].Amax();
      finite_ = finite_ && std::isfinite(amax);
      tile_scales_[block] = ScaleOf<Quotient::kReciprocal>(amax, BlockScale(amax, power_of_two_));
      tile.scales[b] = tile_scales_[block].scale;
    }
  }

  MatrixView source_;
  bool power_of_two_;
  float* scales_;
  std::uint8_t* values_;
  std::int64_t blocks_per_row_;
  std::int64_t tiles_per_row_;
  std::int64_t tile_blocks_;
  bool finite_ = true;
  PageGroup prefetcher_;
  std::array<Maxima<Type>, kMaxTileBlocks> maxima_;     // of the tile that is scanned
  std::array<Scale, kMaxTileBlocks> tile_scales_ = {};  // of the tile that is converted
};

// Calls body(Type) for the source's type, then makes what was streamed visible.
template <class Body>
bool ForType(DType dtype, const Body& body) {
  bool good = false;
  switch (dtype) {
    case DType::kBF16: good = body(BF16{}); break;
    case DType::kF16: good = body(F16{}); break;
    default: LAYERCAST_CHECK(dtype == DType::kF32); good = body(F32{});
  }
  hwy::FlushStream();
  return good;
}

}  // namespace

bool ConvertWithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) { return WithScale<decltype(type)>(source, amax, scale, values); });
}

bool ConvertRows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) { return Rows<decltype(type)>(source, scales, values); });
}

bool ConvertRowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                      std::uint8_t* values) {
  return ForType(source.dtype, [&](auto type) { return RowsGiven<decltype(type)>(source, amax, scales, values); });
}

bool ConvertBlocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values) {
  return ForType(source.dtype,
                 [&](auto type) { return BlockPass<decltype(type)>(source, power_of_two, scales, values).Convert(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(ConvertWithScale);
HWY_EXPORT(ConvertRows);
HWY_EXPORT(ConvertRowsGiven);
HWY_EXPORT(ConvertBlocks);

bool ConvertWithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values) {
  return HWY_DYNAMIC_DISPATCH(ConvertWithScale)(source, amax, scale, values);
}

bool ConvertRows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  if (source.rows == 0) return true;
  return HWY_DYNAMIC_DISPATCH(ConvertRows)(source, scales, values);
}

bool ConvertRowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                      std::uint8_t* values) {
  return HWY_DYNAMIC_DISPATCH(ConvertRowsGiven)(source, amax, scales, values);
}

bool ConvertBlocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values) {
  if (source.rows == 0 || source.cols == 0) return true;
  return HWY_DYNAMIC_DISPATCH(ConvertBlocks)(source, power_of_two, scales, values);
}

}  // namespace layercast
#endif
