// A histogram of how long things took. Its buckets are the same for all stages of all processes, and never change: a
// change would break the histories that Prometheus keeps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace layercast {

// Value.
class Durations {
 public:
  // Seconds: the upper bounds of all buckets but the last, which has no bound.
  static constexpr std::array<double, 17> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,    5,     10,   25,    60,   120, 300};

  void Add(double seconds);
  std::uint64_t count() const { return count_; }
  double sum() const { return sum_; }  // seconds
  // How many were at most kBounds[bucket].
  std::uint64_t AtMost(std::size_t bucket) const;
  bool operator==(const Durations&) const = default;

 private:
  std::array<std::uint64_t, kBounds.size()> in_bucket_{};
  std::uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace layercast
