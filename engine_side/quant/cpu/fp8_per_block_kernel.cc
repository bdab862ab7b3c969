#include "engine_side/quant/cpu/cpu_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "engine_side/quant/scales.h"
#include "src/tensor/kernels/page_prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/quant/cpu/fp8_per_block_kernel.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "engine_side/quant/cpu/chunk_pass-inl.h"
#include "engine_side/quant/cpu/fp8_codes-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

// The pass over 128 x 128 blocks. It goes by tiles, which are one block high and several wide: while one tile is
// encoded, from a cache, the next is scanned. Two tiles of 8 blocks fit in the second-level cache of a server. A
// processor that reads better sequentially gets wider ones.
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

  bool Encode() {
    Tile now;
    for (std::int64_t i = 0;; ++i) {
      const Tile next = TileAt(i);
      Step(now, next, TileAt(i + 1));
      if (next.rows == 0) return finite_;
      now = next;
      MakeEncoders(now);
    }
  }

 private:
  using Encoder = Fp8Encoder<Type, Quotient::kReciprocal>;
  using Constants = ChunkConstants<Encoder>;
  static constexpr std::int64_t kMaxTileBlocks = 32;
  static constexpr std::size_t kBytes = sizeof(typename Type::Bits);

  // Prefetches a group of rows of the tile that is scanned, from memory, and the next row of the tile that is encoded,
  // from a cache. A processor that reads better sequentially finds the latter by itself; prefetching them there costs a
  // tenth.
  struct Prefetcher {
    PageGroup scanned;
    std::uintptr_t encoded = 0;  // 0: not prefetched

    HWY_INLINE void Next() {
      scanned.Next();
      if (encoded == 0) return;
      __builtin_prefetch(reinterpret_cast<const void*>(encoded));
      __builtin_prefetch(reinterpret_cast<const void*>(encoded + kPrefetchStep / 2));
      encoded += kPrefetchStep;
    }
  };

  struct Tile {
    const std::byte* source = nullptr;
    std::uint8_t* values = nullptr;
    float* scales = nullptr;
    std::int64_t rows = 0;  // 0 past the end
    std::int64_t cols = 0;

    // How many elements block `block` has in row `row`.
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

  // Starts prefetching rows from `row` of `tile` on, or the first rows of the tile after it.
  void Prefetch(const Tile& tile, const Tile& after, std::int64_t row) {
    const Tile& from = row < tile.rows ? tile : after;
    const std::int64_t first = row < tile.rows ? row : 0;
    if (from.rows == 0) return;
    prefetcher_.scanned.Start(static_cast<std::size_t>(from.cols) * kBytes, [&](std::size_t i) {
      return reinterpret_cast<std::uintptr_t>(from.source) +
             static_cast<std::uintptr_t>((first + static_cast<std::int64_t>(i)) * source_.row_stride);
    });
  }

  void Step(const Tile& now, const Tile& next, const Tile& after) {
    const auto group = static_cast<std::int64_t>(prefetcher_.scanned.count());
    const Constants constants;
    maxima_ = {};
    for (std::int64_t r = 0; r < std::max(now.rows, next.rows); ++r) {
      if (r % group == 0) Prefetch(next, after, r + group);
      if (group > 1) {
        prefetcher_.encoded =
            reinterpret_cast<std::uintptr_t>(now.source) + static_cast<std::uintptr_t>((r + 1) * source_.row_stride);
      }
      if (IsWhole(now, r) && IsWhole(next, r)) {
        StepRow(constants, now, next, r);
      } else {
        for (std::int64_t b = 0; b < tile_blocks_; ++b) StepBlock(constants, now, next, r, b);
      }
    }
  }

  bool IsWhole(const Tile& tile, std::int64_t row) const {
    return row < tile.rows && tile.cols == tile_blocks_ * kFp8Block;
  }

  // Does what StepBlock does for all blocks of a row, all of which must be whole.
  HWY_INLINE void StepRow(const Constants& constants, const Tile& now, const Tile& next, std::int64_t r) {
    constexpr auto kWhole = static_cast<std::size_t>(kFp8Block);
    const std::byte* scan = next.source + r * source_.row_stride;
    const std::byte* source = now.source + r * source_.row_stride;
    std::uint8_t* values = now.values + r * source_.cols;
    // These are copies of members, which the compiler would load again each time: for all it knows, values are stored
    // over them.
    const auto blocks = static_cast<std::size_t>(tile_blocks_);
    Prefetcher prefetcher = prefetcher_;
    for (std::size_t b = 0; b < blocks; ++b) {
      Run<Do::kBoth>(constants, {kWhole, scan, source, values}, maxima_[b], prefetcher, encoders_[b]);
      scan += kWhole * kBytes;
      source += kWhole * kBytes;
      values += kWhole;
    }
    prefetcher_ = prefetcher;
  }

  HWY_INLINE void StepBlock(const Constants& constants, const Tile& now, const Tile& next, std::int64_t r,
                            std::int64_t b) {
    const std::size_t encode = now.Count(r, b);
    const std::size_t scan = next.Count(r, b);
    const std::int64_t offset = r * source_.row_stride + b * kFp8Block * static_cast<std::int64_t>(kBytes);
    std::uint8_t* values = encode == 0 ? nullptr : now.values + r * source_.cols + b * kFp8Block;
    Maxima<Type>& maxima = maxima_[static_cast<std::size_t>(b)];
    const Encoder& encoder = encoders_[static_cast<std::size_t>(b)];
    if (scan > 0) {
      Run<Do::kScan>(constants, {scan, next.source + offset, nullptr, nullptr}, maxima, prefetcher_, Encoder{});
    }
    if (encode > 0) {
      Run<Do::kEncode>(constants, {encode, nullptr, now.source + offset, values}, maxima, prefetcher_, encoder);
    }
  }

  void MakeEncoders(const Tile& tile) {
    for (std::int64_t b = 0; tile.Count(0, b) > 0; ++b) {
      const auto block = static_cast<std::size_t>(b);
      const float amax = maxima_[block].Amax();
      finite_ = finite_ && std::isfinite(amax);
      encoders_[block] = Encoder::With(amax, BlockScale(amax, power_of_two_));
      tile.scales[b] = encoders_[block].scale();
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
  Prefetcher prefetcher_;
  std::array<Maxima<Type>, kMaxTileBlocks> maxima_;    // of the tile that is scanned
  std::array<Encoder, kMaxTileBlocks> encoders_ = {};  // of the tile that is encoded
};

}  // namespace

bool Fp8Blocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values) {
  return ForType(source.dtype,
                 [&](auto type) { return BlockPass<decltype(type)>(source, power_of_two, scales, values).Encode(); });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(Fp8Blocks);

// While some blocks are encoded, the next ones are scanned. The last blocks may be partial.
bool CpuFp8PerBlock(const QuantizeJob& job) {
  if (job.source.rows == 0 || job.source.cols == 0) return true;
  return HWY_DYNAMIC_DISPATCH(Fp8Blocks)(job.source, job.power_of_two, job.float_scales(), job.codes());
}

}  // namespace layercast
#endif
