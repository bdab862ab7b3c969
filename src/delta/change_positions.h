// Where elements changed, as the forms of a frame say it: walkers over positions in ascending order, for apply and
// fold. Each has `next()`, kNoPosition at the end, and `Advance()`. What they read was checked before (delta_body.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "src/delta/element_bits.h"

namespace layercast {

inline constexpr std::size_t kNoPosition = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kWordBits = 64;

// A gap is how many elements lie between two that changed. It is a high byte, and with `width` 2 a low one in a list of
// its own; a high byte of 255 says: 255 units more, and another high byte follows. A unit is 1, or 256 with width 2.
inline constexpr std::uint8_t kLongGap = 255;

constexpr std::size_t GapUnitShift(std::size_t width) { return width == 2 ? 8 : 0; }

// Value; borrows; one thread only. `kWidth` is 1 or 2.
template <std::size_t kWidth>
class GapPositions {
 public:
  GapPositions(std::span<const std::byte> high, std::span<const std::byte> low)
      : high_(high.data()), end_(high.data() + high.size()), low_(low.data()) {
    Advance();
  }

  std::size_t next() const { return next_; }
  void Advance() {
    if (high_ == end_) {
      next_ = kNoPosition;
      return;
    }
    auto high = std::to_integer<std::size_t>(*high_++);
    std::size_t units = high;
    for (; high == kLongGap; units += high) high = std::to_integer<std::size_t>(*high_++);
    next_ += (units << GapUnitShift(kWidth)) + 1;
    if constexpr (kWidth == 2) next_ += std::to_integer<std::size_t>(*low_++);
  }

 private:
  const std::byte* high_;
  const std::byte* end_;
  const std::byte* low_;
  std::size_t next_ = kNoPosition;  // -1: the first gap is counted from before the first element
};

// The bits that are set, from the lowest of the first word on: listed for some words at a time. Value; borrows; one
// thread only.
class BitPositions {
 public:
  explicit BitPositions(std::span<const std::uint64_t> words) : words_(words) { ListMore(); }

  std::size_t next() const { return next_; }
  void Advance() {
    if (++at_ == count_) return ListMore();
    next_ = first_ + listed_[at_];
  }

 private:
  static constexpr std::size_t kListedWords = 32;

  void ListMore() {
    at_ = count_ = 0;
    for (; count_ == 0 && word_ < words_.size(); word_ += kListedWords) {
      first_ = word_ * kWordBits;
      count_ = ListBits(words_.subspan(word_, std::min(kListedWords, words_.size() - word_)), listed_.data());
    }
    next_ = count_ == 0 ? kNoPosition : first_ + listed_.front();
  }

  std::span<const std::uint64_t> words_;
  std::size_t word_ = 0;   // the first that is not listed yet
  std::size_t first_ = 0;  // what the listed numbers count from
  std::size_t at_ = 0;
  std::size_t count_ = 0;
  std::size_t next_ = kNoPosition;
  std::array<std::uint32_t, kListedWords * kWordBits + kListSlack> listed_;
};

// Value; one thread only.
class RangePositions {
 public:
  RangePositions(std::size_t first, std::size_t count) : next_(count == 0 ? kNoPosition : first), end_(first + count) {}

  std::size_t next() const { return next_; }
  void Advance() {
    if (++next_ == end_) next_ = kNoPosition;
  }

 private:
  std::size_t next_;
  std::size_t end_;
};

}  // namespace layercast
