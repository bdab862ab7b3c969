#include "src/checkpoint/natural_order.h"

#include <cstddef>

namespace layercast {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits that `text` begins with, without leading zeros.
std::string_view TakeNumber(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && IsDigit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

}  // namespace

bool NaturalLess(std::string_view left, std::string_view right) {
  const std::string_view whole_left = left;
  const std::string_view whole_right = right;
  while (!left.empty() && !right.empty()) {
    if (IsDigit(left.front()) && IsDigit(right.front())) {
      const std::string_view a = TakeNumber(left);
      const std::string_view b = TakeNumber(right);
      if (a.size() != b.size()) return a.size() < b.size();
      if (a != b) return a < b;
      continue;
    }
    if (left.front() != right.front()) {
      return static_cast<unsigned char>(left.front()) < static_cast<unsigned char>(right.front());
    }
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  if (left.empty() != right.empty()) return left.empty();
  return whole_left < whole_right;  // they are equal except for leading zeros
}

}  // namespace layercast
