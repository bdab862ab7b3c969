// Loads the weights that kernels read: bf16, f16 or f32 elements, as fp32 vectors. Included by the kernels once for
// each instruction set.
#if defined(LAYERCAST_SOURCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_SOURCE_INL_H_
#undef LAYERCAST_SOURCE_INL_H_
#else
#define LAYERCAST_SOURCE_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "layercast/dtype.h"
#include "src/base/check.h"
#include "src/tensor/element.h"
#include "src/tensor/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::size_t kChunk = 64;  // elements that kernels process, or bytes that they stream, at a time

// A type of weights, and how its magnitudes are held: without the sign, larger bits mean a larger magnitude, and NaN is
// above infinity.
template <class U, DType Type>
struct SourceType {
  using Bits = U;
  static constexpr DType kDType = Type;
  static constexpr U kNoSign = static_cast<U>(~U{0}) >> 1;
};
struct BF16 : SourceType<std::uint16_t, DType::kBF16> {
  static float ToFloat(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
struct F16 : SourceType<std::uint16_t, DType::kF16> {
  static float ToFloat(Bits bits) { return static_cast<float>(DecodeElement(kDType, bits)); }
};
struct F32 : SourceType<std::uint32_t, DType::kF32> {
  static float ToFloat(Bits bits) { return std::bit_cast<float>(bits); }
};

// Calls body(Type) for the source's type, then makes its non-temporal stores visible to other threads.
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

#if HWY_TARGET != HWY_SCALAR

// The tag of vectors of codes, which hold a cache line at most.
using ByteTag = hn::CappedTag<std::uint8_t, 64>;

// Keeps a constant in a register. GCC would otherwise make it anew in each turn of a loop, if that takes the place of a
// shuffle.
template <class V>
HWY_INLINE V Keep(V v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// Elements 0, 2, 4, ... and 1, 3, 5, ... of a stretch, so that the codes of neighbours can be joined, in order, in a
// lane.
template <class DF>
struct Pairs {
  hn::Vec<DF> even;
  hn::Vec<DF> odd;
};

// The constant that LoadPairs takes as `high_half`.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> HighHalf(DF /*df*/) {
  return hn::Set(hn::RebindToUnsigned<DF>(), 0xffff0000U);
}

template <class DF, class VU>
HWY_INLINE Pairs<DF> LoadPairs(BF16 /*type*/, DF df, const std::byte* from, VU high_half) {
  const auto both = LoadAny(hn::RebindToUnsigned<DF>(), from);
  return {hn::BitCast(df, hn::ShiftLeft<16>(both)), hn::BitCast(df, hn::And(both, high_half))};
}

template <class DF>
HWY_INLINE Pairs<DF> Unzip(DF df, hn::Vec<DF> first, hn::Vec<DF> second) {
  return {hn::ConcatEven(df, second, first), hn::ConcatOdd(df, second, first)};
}

template <class DF, class VU>
HWY_INLINE Pairs<DF> LoadPairs(F16 /*type*/, DF df, const std::byte* from, VU /*high_half*/) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  const auto* elements = reinterpret_cast<const hwy::float16_t*>(from);
  return Unzip(df, hn::PromoteTo(df, hn::LoadU(d16, elements)),
               hn::PromoteTo(df, hn::LoadU(d16, elements + hn::Lanes(df))));
}

template <class DF, class VU>
HWY_INLINE Pairs<DF> LoadPairs(F32 /*type*/, DF df, const std::byte* from, VU /*high_half*/) {
  return Unzip(df, LoadAny(df, from), LoadAny(df, from + hn::Lanes(df) * sizeof(float)));
}

// Selects bit by bit. (IfVecThenElse looks at whole lanes if there is no instruction for this.)
template <class V>
HWY_INLINE V Select(V mask, V yes, V no) {
#if HWY_TARGET <= HWY_AVX3
  return hn::IfVecThenElse(mask, yes, no);
#else
  return hn::Or(hn::And(mask, yes), hn::AndNot(mask, no));
#endif
}

// Sorts bytes in which four vectors take turns: first all of one vector, then all of the next.
class BytesInOrder {
 public:
  HWY_INLINE BytesInOrder() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  HWY_INLINE hn::Vec<ByteTag> operator()(hn::Vec<ByteTag> bytes) const {
    const auto parts = hn::BitCast(Tag(), hn::TableLookupBytes(bytes, within_blocks_));
    return hn::BitCast(ByteTag(), hn::TableLookupLanes(parts, between_blocks_));
  }

 private:
  using Lane = std::uint32_t;
  using Tag = hn::Repartition<Lane, ByteTag>;
  using Indices = decltype(hn::SetTableIndices(Tag(), static_cast<const Lane*>(nullptr)));
  static constexpr std::size_t kTurns = 16 / sizeof(Lane);

  static HWY_INLINE hn::Vec<ByteTag> WithinBlocks() {
    HWY_ALIGN std::uint8_t from[16];
    for (std::size_t i = 0; i < 16; ++i) {
      from[i] = static_cast<std::uint8_t>(i % sizeof(Lane) * kTurns + i / sizeof(Lane));
    }
    return hn::LoadDup128(ByteTag(), from);
  }

  static HWY_INLINE Indices BetweenBlocks() {
    HWY_ALIGN Lane from[64 / sizeof(Lane)];
    const std::size_t lanes = hn::Lanes(Tag());
    const std::size_t blocks = lanes / kTurns;
    for (std::size_t i = 0; i < lanes; ++i) from[i] = static_cast<Lane>(i % blocks * kTurns + i / blocks);
    return hn::SetTableIndices(Tag(), from);
  }

  hn::Vec<ByteTag> within_blocks_ = Keep(WithinBlocks());
  Indices between_blocks_ = BetweenBlocks();
};

// The low bytes, in order, of the 16-bit lanes of two vectors. The lanes must be -128 ... 127.
class LowBytes {
 public:
  HWY_INLINE LowBytes() {}  // NOLINT(modernize-use-equals-default): a default one has no instruction set

  using V = hn::Vec<hn::RebindToSigned<hn::RepartitionToWide<ByteTag>>>;

  // Packs with saturation. Highway 1.0.3 would mask the lanes first, which is not needed with saturation.
#if HWY_TARGET <= HWY_AVX3
  HWY_INLINE hn::Vec<ByteTag> operator()(V low, V high) const {
    const __m512i turns = _mm512_packs_epi16(low.raw, high.raw);  // in turns: 8 bytes of each
    return hn::Vec<ByteTag>{_mm512_permutexvar_epi64(order_.raw, turns)};
  }

 private:
  static HWY_INLINE hn::Vec<hn::Full512<std::uint64_t>> Order() {
    HWY_ALIGN static constexpr std::uint64_t kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
    return hn::Load(hn::Full512<std::uint64_t>(), kOrder);
  }

  hn::Vec<hn::Full512<std::uint64_t>> order_ = Keep(Order());
#elif HWY_TARGET == HWY_AVX2
  HWY_INLINE hn::Vec<ByteTag> operator()(V low, V high) const {
    const __m256i turns = _mm256_packs_epi16(low.raw, high.raw);  // in turns: 8 bytes of each
    return hn::Vec<ByteTag>{_mm256_permute4x64_epi64(turns, _MM_SHUFFLE(3, 1, 2, 0))};
  }
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  HWY_INLINE hn::Vec<ByteTag> operator()(V low, V high) const {
    return hn::Vec<ByteTag>{_mm_packs_epi16(low.raw, high.raw)};
  }
#else
  HWY_INLINE hn::Vec<ByteTag> operator()(V low, V high) const {
    return hn::ConcatEven(ByteTag(), hn::BitCast(ByteTag(), high), hn::BitCast(ByteTag(), low));
  }
#endif
};

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
