#include "src/delta/gap_list.h"

#include "src/delta/change_positions.h"

namespace layercast {
namespace {

template <class Visit>
void ForGaps(std::span<const std::uint64_t> words, const Visit& visit) {
  std::size_t after_last = 0;
  for (BitPositions positions(words); positions.next() != kNoPosition; positions.Advance()) {
    visit(positions.next() - after_last);
    after_last = positions.next() + 1;
  }
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

GapSizes SizesOfGaps(std::span<const std::uint64_t> words) {
  GapSizes sizes;
  ForGaps(words, [&](std::size_t gap) {
    sizes.narrow += 1 + gap / kLongGap;
    sizes.wide += 2 + (gap >> GapUnitShift(2)) / kLongGap;
  });
  return sizes;
}

GapList MakeGaps(std::span<const std::uint64_t> words, std::size_t count, std::size_t width) {
  GapList gaps{.width = width, .high = {}, .low = {}};
  gaps.high.reserve(count);
  if (width == 2) gaps.low.reserve(count);
  ForGaps(words, [&](std::size_t gap) {
    std::size_t units = gap >> GapUnitShift(width);
    for (; units >= kLongGap; units -= kLongGap) gaps.high.push_back(std::byte{kLongGap});
    gaps.high.push_back(static_cast<std::byte>(units));
    if (width == 2) gaps.low.push_back(static_cast<std::byte>(gap));
  });
  return gaps;
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
