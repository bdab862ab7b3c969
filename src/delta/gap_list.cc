#include "src/delta/gap_list.h"

#include <utility>

#include "src/delta/change_positions.h"

namespace layercast {
namespace {

template <std::size_t kWidth>
GapList GapsOf(std::span<const std::uint64_t> words, std::size_t count) {
  constexpr std::size_t kShift = GapUnitShift(kWidth);
  GapList gaps{.width = kWidth, .high = {}, .low = {}};
  gaps.high.resize(MostGapBytes(words.size() * kWordBits, count, kWidth));
  if (kWidth == 2) gaps.low.resize(count);
  std::byte* high = gaps.high.data();
  std::byte* low = gaps.low.data();
  std::size_t after_last = 0;
  for (BitPositions positions(words); positions.next() != kNoPosition; positions.Advance()) {
    const std::size_t gap = positions.next() - after_last;
    after_last = positions.next() + 1;
    std::size_t units = gap >> kShift;
    for (; units >= kLongGap; units -= kLongGap) *high++ = std::byte{kLongGap};
    *high++ = static_cast<std::byte>(units);
    if (kWidth == 2) *low++ = static_cast<std::byte>(gap);
  }
  gaps.high.resize(static_cast<std::size_t>(high - gaps.high.data()));
  return gaps;
}

std::size_t SumOf(std::span<const std::byte> bytes) {
  std::size_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<std::size_t>(byte);
  return sum;
}

std::size_t CountLong(std::span<const std::byte> high) {
  std::size_t count = 0;
  for (const std::byte byte : high) count += byte == std::byte{kLongGap} ? 1 : 0;
  return count;
}

}  // namespace

GapList MakeGaps(std::span<const std::uint64_t> words, std::size_t count) {
  GapList narrow = GapsOf<1>(words, count);
  if (narrow.bytes() <= 2 * count) return narrow;  // wide ones take two bytes at least
  GapList wide = GapsOf<2>(words, count);
  return wide.bytes() < narrow.bytes() ? std::move(wide) : std::move(narrow);
}

std::size_t MostGapBytes(std::size_t elements, std::size_t count, std::size_t width) {
  return count + (elements >> GapUnitShift(width)) / kLongGap;
}

std::string WrongWithGaps(const GapBytes& gaps, std::size_t elements, std::size_t count) {
  const std::size_t ended = gaps.high.size() - CountLong(gaps.high);
  if (ended != count) return "expected " + std::to_string(count) + " gaps, got " + std::to_string(ended);
  if (!gaps.high.empty() && gaps.high.back() == std::byte{kLongGap}) return "the last gap does not end";
  const std::size_t span = count + (SumOf(gaps.high) << GapUnitShift(gaps.width)) + SumOf(gaps.low);
  if (span <= elements) return {};
  return "expected positions below " + std::to_string(elements) + ", got " + std::to_string(span - 1);
}

}  // namespace layercast
