#include "src/delta/element_bits.h"

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/delta/element_bits.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "hwy/highway.h"
#include "src/tensor/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kBitsOfWord = 64;

template <class T>
using ElementTag = hn::CappedTag<T, kBitsOfWord>;

// The bits of 64 elements, of which mask_at(i) is the mask of a vector's from number i on.
template <class T, class MaskAt>
HWY_INLINE std::uint64_t WordOf(const MaskAt& mask_at) {
  const ElementTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint64_t word = 0;
  if (lanes >= 8) {
    std::uint8_t bytes[8];
    for (std::size_t i = 0; i < kBitsOfWord; i += lanes) hn::StoreMaskBits(d, mask_at(i), bytes + i / 8);
    std::memcpy(&word, bytes, sizeof(word));
    return word;
  }
  for (std::size_t i = 0; i < kBitsOfWord; i += lanes) {  // less than a byte each
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, mask_at(i), bits);
    word |= static_cast<std::uint64_t>(bits[0] & ((1U << lanes) - 1)) << i;
  }
  return word;
}

template <class T>
std::size_t ChangedOf(const std::byte* base, const std::byte* next, std::size_t count, std::uint64_t* words) {
  constexpr std::size_t kStep = kBitsOfWord * sizeof(T);
  std::size_t changed = 0;
  for (; count >= kBitsOfWord; count -= kBitsOfWord, base += kStep, next += kStep) {
    const std::uint64_t word = WordOf<T>([&](std::size_t i) HWY_ATTR {
      return hn::Ne(LoadAny(ElementTag<T>(), base + i * sizeof(T)), LoadAny(ElementTag<T>(), next + i * sizeof(T)));
    });
    changed += static_cast<std::size_t>(std::popcount(word));
    *words++ = word;
  }
  if (count == 0) return changed;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool differs = std::memcmp(base + i * sizeof(T), next + i * sizeof(T), sizeof(T)) != 0;
    word |= std::uint64_t{differs} << i;
  }
  *words = word;
  return changed + static_cast<std::size_t>(std::popcount(word));
}

template <class T>
void SmallOf(const std::byte* elements, std::size_t count, T threshold, std::uint64_t* words) {
  constexpr std::size_t kStep = kBitsOfWord * sizeof(T);
  constexpr T kMagnitude = std::numeric_limits<T>::max() / 2;
  const ElementTag<T> d;
  const hn::RebindToSigned<ElementTag<T>> ds;  // without the sign they are not negative, and compare faster
  const auto magnitude = hn::Set(d, kMagnitude);
  const auto limit = hn::Set(ds, static_cast<std::make_signed_t<T>>(threshold));
  for (; count >= kBitsOfWord; count -= kBitsOfWord, elements += kStep) {
    *words++ = WordOf<T>([&](std::size_t i) HWY_ATTR {
      const auto bits = hn::And(LoadAny(ElementTag<T>(), elements + i * sizeof(T)), magnitude);
      return hn::RebindMask(d, hn::Lt(hn::BitCast(ds, bits), limit));
    });
  }
  if (count == 0) return;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, elements + i * sizeof(T), sizeof(T));
    word |= std::uint64_t{(bits & kMagnitude) < threshold} << i;
  }
  *words = word;
}

}  // namespace

std::size_t ChangedBitsOf(const std::byte* base, const std::byte* next, std::size_t count, std::size_t element_bytes,
                          std::uint64_t* words) {
  switch (element_bytes) {
    case 1: return ChangedOf<std::uint8_t>(base, next, count, words);
    case 2: return ChangedOf<std::uint16_t>(base, next, count, words);
    default: return ChangedOf<std::uint32_t>(base, next, count, words);
  }
}

void SmallBitsOf(const std::byte* elements, std::size_t count, std::size_t element_bytes, std::uint32_t threshold,
                 std::uint64_t* words) {
  switch (element_bytes) {
    case 1: return SmallOf(elements, count, static_cast<std::uint8_t>(threshold), words);
    case 2: return SmallOf(elements, count, static_cast<std::uint16_t>(threshold), words);
    default: return SmallOf(elements, count, threshold, words);
  }
}

std::size_t CountBitsOf(const std::uint64_t* words, std::size_t count) {
  std::size_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) bits += static_cast<std::size_t>(std::popcount(words[i]));
  return bits;
}

// The number of the lowest bit that is set, which is cleared; 64 if there is none, without a branch: GCC would make
// one.
HWY_INLINE std::uint32_t TakeLowest(std::uint64_t& word) {
  const auto lowest = static_cast<std::uint32_t>(std::countr_zero(word));
  word &= word - 1;
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+r"(word));
#endif
  return lowest;
}

// Four at a time, needed or not: whether a word has any, and how many, would be foretold wrongly again and again.
std::size_t ListBitsOf(const std::uint64_t* words, std::size_t count, std::uint32_t* positions) {
  std::uint32_t* to = positions;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word = words[i];
    const auto bits = static_cast<std::size_t>(std::popcount(word));
    const auto first = static_cast<std::uint32_t>(i * kBitsOfWord);
    std::size_t done = 0;
    do {
      for (std::size_t j = 0; j < kListSlack; ++j) to[done + j] = first + TakeLowest(word);
      done += kListSlack;
    } while (done < bits);
    to += bits;
  }
  return static_cast<std::size_t>(to - positions);
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "src/base/check.h"

namespace layercast {

HWY_EXPORT(ChangedBitsOf);
HWY_EXPORT(SmallBitsOf);
HWY_EXPORT(CountBitsOf);
HWY_EXPORT(ListBitsOf);

std::size_t ChangedBits(std::span<const std::byte> base, std::span<const std::byte> next, std::size_t element_bytes,
                        std::span<std::uint64_t> words) {
  const std::size_t count = base.size() / element_bytes;
  LAYERCAST_CHECK(base.size() == next.size() && words.size() == NumWords(count));
  return HWY_DYNAMIC_DISPATCH(ChangedBitsOf)(base.data(), next.data(), count, element_bytes, words.data());
}

std::size_t CountBits(std::span<const std::uint64_t> words) {
  return HWY_DYNAMIC_DISPATCH(CountBitsOf)(words.data(), words.size());
}

std::size_t ListBits(std::span<const std::uint64_t> words, std::uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(ListBitsOf)(words.data(), words.size(), positions);
}

void SmallBits(std::span<const std::byte> elements, std::size_t element_bytes, std::uint32_t threshold,
               std::span<std::uint64_t> words) {
  const std::size_t count = elements.size() / element_bytes;
  LAYERCAST_CHECK(words.size() == NumWords(count));
  HWY_DYNAMIC_DISPATCH(SmallBitsOf)(elements.data(), count, element_bytes, threshold, words.data());
}

}  // namespace layercast
#endif
