// One pass over elements that scans some and encodes others into one byte each. Included by the kernels once for each
// instruction set.
//
// An encoder makes the bytes. Its `Type` is the source's, and One(value) encodes a single element. `Constants` is what
// all encoders of a kind hold in registers. ByArithmetic(constants, encoder) is what a loop over chunks holds: its
// operator()(from, put) encodes a chunk, calls put(i, codes) for each vector of codes, and returns true. An encoder
// with `kHasTable` whose table_fits() is true also has a faster ByTable, which returns false for the few chunks that it
// cannot encode.
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

#include "engine_side/quant/cpu/source-inl.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/tensor/element.h"
#include "src/tensor/kernels/page_prefetch.h"
#include "src/tensor/kernels/scan.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

// The largest magnitude seen in each lane, as bits.
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

// The constants that a loop over chunks holds in registers.
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

#if HWY_TARGET == HWY_SCALAR
template <class Encoder>
class ByArithmeticOf {
 public:
  HWY_INLINE ByArithmeticOf(const ChunkConstants<Encoder>& /*constants*/, const Encoder& encoder) : encoder_(encoder) {}

  HWY_INLINE bool operator()(const std::byte* source, bool /*stream*/, std::uint8_t* values) const {
    for (std::size_t i = 0; i < kChunk; ++i) {
      const auto index = static_cast<std::int64_t>(i);
      values[i] = encoder_.One(static_cast<float>(ElementValue(Encoder::Type::kDType, source, index)));
    }
    return true;
  }

 private:
  const Encoder& encoder_;
};
#else
// Encodes a chunk in one way, by a table or by arithmetic, and returns whether it could be encoded so.
template <class Way>
class ChunkEncoder {
 public:
  template <class Encoder>
  HWY_INLINE ChunkEncoder(const ChunkConstants<Encoder>& constants, const Encoder& encoder)
      : way_(constants.encoder, encoder) {}

  HWY_INLINE bool operator()(const std::byte* source, bool stream, std::uint8_t* values) const {
    const ByteTag d8;
    const auto put = [&](std::size_t i, hn::Vec<ByteTag> codes) HWY_ATTR {
      if (HWY_LIKELY(stream)) {
        hn::Stream(codes, d8, values + i);
      } else {
        hn::StoreU(codes, d8, values + i);
      }
    };
    return way_(source, put);
  }

 private:
  Way way_;
};

template <class Encoder>
using ByArithmeticOf = ChunkEncoder<typename Encoder::ByArithmetic>;

// Encodes one chunk. It is not inlined, because a loop would give up registers for what it seldom does.
template <class Encoder>
HWY_NOINLINE void EncodeByArithmetic(const Encoder& encoder, const std::byte* source, bool stream,
                                     std::uint8_t* values) {
  ByArithmeticOf<Encoder>(ChunkConstants<Encoder>(), encoder)(source, stream, values);
}
#endif

// What Run does. The pointers that it does not need for this are null.
enum class Do { kScan, kEncode, kBoth };

// Elements that are scanned, and as many others that are encoded.
struct Stretch {
  std::size_t count;
  const std::byte* scan;
  const std::byte* source;
  std::uint8_t* values;
};

// Processes chunks from element `i` on, as long as there are any and `encode` can encode them. Returns where it
// stopped. A chunk that could not be encoded has been scanned.
template <Do What, class Encoder, class Encode, class Prefetcher, class V>
HWY_INLINE std::size_t RunChunks(const ChunkConstants<Encoder>& constants, const Encode& encode, const Stretch& stretch,
                                 std::size_t i, Prefetcher& prefetcher, V& max) {
  constexpr std::size_t kSize = sizeof(typename Encoder::Type::Bits);
  const bool stream = reinterpret_cast<std::uintptr_t>(stretch.values) % kChunk == 0;
  for (; i + kChunk <= stretch.count; i += kChunk) {
    if constexpr (What != Do::kEncode) {
      for (std::size_t bytes = 0; bytes < kChunk * kSize; bytes += kPrefetchStep) prefetcher.Next();
      max = ScanChunk(constants, stretch.scan + i * kSize, max);
    }
    if constexpr (What != Do::kScan) {
      if (HWY_UNLIKELY(!encode(stretch.source + i * kSize, stream, stretch.values + i))) break;
    }
  }
  return i;
}

template <Do What, class Encoder, class Prefetcher>
HWY_INLINE void Run(const ChunkConstants<Encoder>& constants, const Stretch& stretch,
                    Maxima<typename Encoder::Type>& maxima, Prefetcher& prefetcher, const Encoder& encoder) {
  constexpr std::size_t kSize = sizeof(typename Encoder::Type::Bits);
  const typename ChunkConstants<Encoder>::D d;
  auto max = hn::Load(d, maxima.lanes);
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (What != Do::kScan && Encoder::kHasTable) {
    const bool stream = reinterpret_cast<std::uintptr_t>(stretch.values) % kChunk == 0;
    while (encoder.table_fits()) {
      const ChunkEncoder<typename Encoder::ByTable> by_table(constants, encoder);
      i = RunChunks<What>(constants, by_table, stretch, i, prefetcher, max);
      if (HWY_LIKELY(i + kChunk > stretch.count)) break;
      EncodeByArithmetic(encoder, stretch.source + i * kSize, stream, stretch.values + i);
      i += kChunk;
    }
  }
#endif
  const ByArithmeticOf<Encoder> by_arithmetic(constants, encoder);
  i = RunChunks<What>(constants, by_arithmetic, stretch, i, prefetcher, max);
  if (i < stretch.count) {  // the rest, padded with zeros
    HWY_ALIGN std::byte padded[kChunk * kSize] = {};
    if constexpr (What != Do::kEncode) {
      std::memcpy(padded, stretch.scan + i * kSize, (stretch.count - i) * kSize);
      max = ScanChunk(constants, padded, max);
    }
    if constexpr (What != Do::kScan) {
      std::memcpy(padded, stretch.source + i * kSize, (stretch.count - i) * kSize);
      HWY_ALIGN std::uint8_t codes[kChunk];
      by_arithmetic(padded, false, codes);
      std::memcpy(stretch.values + i, codes, stretch.count - i);
    }
  }
  hn::Store(max, d, maxima.lanes);
}

// The matrix as one long row if nothing lies between its rows; otherwise as it is.
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
