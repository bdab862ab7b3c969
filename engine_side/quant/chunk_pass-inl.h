// One pass over elements that scans some and turns others into one byte each, on one instruction set; included by
// the kernels once for each.
//
// An encoder makes the bytes: `Type` is its source's, operator()(constants, from) encodes a vector of elements, and
// One(value) a single one. `Constants` is what all encoders of the kind hold in registers.
#if defined(LAYERCAST_CHUNK_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_CHUNK_PASS_INL_H_
#undef LAYERCAST_CHUNK_PASS_INL_H_
#else
#define LAYERCAST_CHUNK_PASS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine_side/quant/source-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/tensor/element.h"
#include "src/tensor/page_prefetch.h"
#include "src/tensor/scan.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

inline constexpr std::size_t kChunk = 64;  // elements

// The largest magnitude seen, lane by lane, as bits.
template <class Type>
struct Maxima {
  using Bits = typename Type::Bits;
  static constexpr std::size_t kLanes = 64 / sizeof(Bits);
  HWY_ALIGN Bits lanes[kLanes] = {};

  float Amax() const {
    Bits largest = 0;
    for (const Bits lane : lanes) largest = std::max(largest, lane);  // std::max_element is not vectorized
    return Type::ToFloat(largest);
  }
};

// What a loop over chunks holds in registers.
template <class Encoder>
struct ChunkConstants {
  HWY_INLINE ChunkConstants() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  using Bits = typename Encoder::Type::Bits;
  using D = hn::CappedTag<Bits, Maxima<typename Encoder::Type>::kLanes>;
#if HWY_TARGET != HWY_SCALAR
  hn::Vec<D> no_sign = Keep(hn::Set(D(), Encoder::Type::kNoSign));
  typename Encoder::Constants encoder;
#else
  hn::Vec<D> no_sign = hn::Set(D(), Encoder::Type::kNoSign);
#endif
};

template <class Encoder, class V>
HWY_INLINE V ScanChunk(const ChunkConstants<Encoder>& constants, const std::byte* source, V max) {
  using Bits = typename Encoder::Type::Bits;
  const typename ChunkConstants<Encoder>::D d;
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    max = hn::Max(max, hn::And(LoadAny(d, source + i * sizeof(Bits)), constants.no_sign));
  }
  return max;
}

template <class Encoder>
HWY_INLINE void EncodeChunk(const ChunkConstants<Encoder>& constants, const Encoder& encoder, const std::byte* source,
                            bool stream, std::uint8_t* values) {
  using Type = typename Encoder::Type;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kChunk; ++i) {
    values[i] = encoder.One(static_cast<float>(ElementValue(Type::kDType, source, static_cast<std::int64_t>(i))));
  }
  static_cast<void>(constants);
  static_cast<void>(stream);
#else
  const ByteTag d8;
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d8)) {
    const auto codes = encoder(constants.encoder, source + i * sizeof(typename Type::Bits));
    if (stream) {
      hn::Stream(codes, d8, values + i);
    } else {
      hn::StoreU(codes, d8, values + i);
    }
  }
#endif
}

// What Run does; a null pointer is in the place of what is not wanted.
enum class Do { kScan, kEncode, kBoth };

// Scans `count` elements at `scan` and encodes as many at `source`.
template <Do What, class Encoder, class Prefetcher>
HWY_INLINE void Run(const ChunkConstants<Encoder>& constants, std::size_t count, const std::byte* scan,
                    Maxima<typename Encoder::Type>& maxima, Prefetcher& prefetcher, const std::byte* source,
                    const Encoder& encoder, std::uint8_t* values) {
  constexpr std::size_t kSize = sizeof(typename Encoder::Type::Bits);
  const bool stream = reinterpret_cast<std::uintptr_t>(values) % kChunk == 0;
  const typename ChunkConstants<Encoder>::D d;
  auto max = hn::Load(d, maxima.lanes);
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    if constexpr (What != Do::kEncode) {
      for (std::size_t bytes = 0; bytes < kChunk * kSize; bytes += kPrefetchStep) prefetcher.Next();
      max = ScanChunk(constants, scan + i * kSize, max);
    }
    if constexpr (What != Do::kScan) EncodeChunk(constants, encoder, source + i * kSize, stream, values + i);
  }
  if (i < count) {  // the rest, padded with zeros
    HWY_ALIGN std::byte padded[kChunk * kSize] = {};
    if constexpr (What != Do::kEncode) {
      std::memcpy(padded, scan + i * kSize, (count - i) * kSize);
      max = ScanChunk(constants, padded, max);
    }
    if constexpr (What != Do::kScan) {
      std::memcpy(padded, source + i * kSize, (count - i) * kSize);
      HWY_ALIGN std::uint8_t codes[kChunk];
      EncodeChunk(constants, encoder, padded, false, codes);
      std::memcpy(values + i, codes, count - i);
    }
  }
  hn::Store(max, d, maxima.lanes);
}

// As one long row, where nothing lies between the rows.
template <class Type>
MatrixView AsOneRow(Type /*type*/, MatrixView source) {
  if (source.row_stride == source.cols * static_cast<std::int64_t>(sizeof(typename Type::Bits))) {
    source.cols *= source.rows;
    source.rows = 1;
  }
  return source;
}

template <class Type>
MatrixPages PagesOf(Type /*type*/, const MatrixView& source) {
  return {source.data, static_cast<std::size_t>(source.rows),
          static_cast<std::size_t>(source.cols) * sizeof(typename Type::Bits),
          static_cast<std::size_t>(source.row_stride)};
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
