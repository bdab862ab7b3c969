// A point in time that a wait ends at, whatever happens. Value.
#pragma once

#include <algorithm>
#include <chrono>

namespace layercast {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline After(std::chrono::milliseconds duration) { return Deadline(Clock::now() + duration); }
  explicit Deadline(Clock::time_point at) : at_(at) {}

  bool Passed() const { return Clock::now() >= at_; }
  // Never negative; rounded up, so that a poll for this long does not spin at the end.
  std::chrono::milliseconds Remaining() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }
  // The earlier of this and `duration` from now: one step of a longer wait.
  Deadline AtMost(std::chrono::milliseconds duration) const { return Deadline(std::min(at_, Clock::now() + duration)); }
  Clock::time_point at() const { return at_; }

 private:
  Clock::time_point at_;
};

}  // namespace layercast
