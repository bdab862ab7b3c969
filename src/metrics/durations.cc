#include "src/metrics/durations.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace layercast {

void Durations::Add(double seconds) {
  const auto* const bound = std::ranges::lower_bound(kBounds, seconds);
  if (bound != kBounds.end()) ++in_bucket_[static_cast<std::size_t>(std::distance(kBounds.begin(), bound))];
  ++count_;
  sum_ += seconds;
}

std::uint64_t Durations::AtMost(std::size_t bucket) const {
  const auto end = in_bucket_.begin() + static_cast<std::ptrdiff_t>(bucket) + 1;
  return std::accumulate(in_bucket_.begin(), end, std::uint64_t{0});
}

}  // namespace layercast
