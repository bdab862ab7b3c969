// One pass over elements that scans some and turns others into one byte each, on one instruction set; included by
// the kernels once for each.
//
// An encoder makes the bytes: `Type` is its source's, operator()(d8, from) encodes a vector of elements, and
// One(value) a single one. Small, copied into the loop.
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

  float Amax() const { return Type::ToFloat(*std::max_element(lanes, lanes + kLanes)); }
};

template <class Type, class D, class V = hn::Vec<D>>
HWY_INLINE V ScanChunk(Type /*type*/, D d, const std::byte* source, V max) {
  const auto no_sign = hn::Set(d, Type::kNoSign);
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    max = hn::Max(max, hn::And(LoadAny(d, source + i * sizeof(typename Type::Bits)), no_sign));
  }
  return max;
}

template <class Encoder>
HWY_INLINE void EncodeChunk(const Encoder& encoder, const std::byte* source, bool stream, std::uint8_t* values) {
  using Type = typename Encoder::Type;
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kChunk; ++i) {
    values[i] = encoder.One(static_cast<float>(ElementValue(Type::kDType, source, static_cast<std::int64_t>(i))));
  }
  static_cast<void>(stream);
#else
  const hn::CappedTag<std::uint8_t, kChunk> d8;
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d8)) {
    const auto codes = encoder(d8, source + i * sizeof(typename Type::Bits));
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
template <Do What, class Type, class Encoder, class Prefetcher>
HWY_INLINE void Run(std::size_t count, const std::byte* scan, Maxima<Type>& maxima, Prefetcher& prefetcher,
                    const std::byte* source, Encoder encoder, std::uint8_t* values) {
  constexpr std::size_t kSize = sizeof(typename Type::Bits);
  const bool stream = reinterpret_cast<std::uintptr_t>(values) % kChunk == 0;
  const hn::CappedTag<typename Type::Bits, Maxima<Type>::kLanes> d;
  auto max = hn::Load(d, maxima.lanes);
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    if constexpr (What != Do::kEncode) {
      for (std::size_t bytes = 0; bytes < kChunk * kSize; bytes += kPrefetchStep) prefetcher.Next();
      max = ScanChunk(Type{}, d, scan + i * kSize, max);
    }
    if constexpr (What != Do::kScan) EncodeChunk(encoder, source + i * kSize, stream, values + i);
  }
  if (i < count) {  // the rest, padded with zeros
    HWY_ALIGN std::byte padded[kChunk * kSize] = {};
    if constexpr (What != Do::kEncode) {
      std::memcpy(padded, scan + i * kSize, (count - i) * kSize);
      max = ScanChunk(Type{}, d, padded, max);
    }
    if constexpr (What != Do::kScan) {
      std::memcpy(padded, source + i * kSize, (count - i) * kSize);
      HWY_ALIGN std::uint8_t codes[kChunk];
      EncodeChunk(encoder, padded, false, codes);
      std::memcpy(values + i, codes, count - i);
    }
  }
  hn::Store(max, d, maxima.lanes);
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
