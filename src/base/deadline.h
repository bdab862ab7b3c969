// When a wait ends at the latest: at a point in time, or earlier if a stop is requested. Every wait takes one. Value.
#pragma once

#include <algorithm>
#include <chrono>
#include <stop_token>
#include <utility>

namespace layercast {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  // A wait ends within this time after a stop was requested, because it looks so often.
  static constexpr Clock::duration kLook = std::chrono::milliseconds(100);

  // The longest wait at one go: its milliseconds are an int, as poll(2) and ZeroMQ take them.
  static constexpr std::chrono::milliseconds kLongest = std::chrono::days(20);

  // A time that the clock cannot reach (milliseconds::max()) never comes.
  static Deadline After(std::chrono::milliseconds duration) {
    const auto now = Clock::now();
    const bool never = duration >= std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
    return Deadline(never ? Clock::time_point::max() : now + duration);
  }
  explicit Deadline(Clock::time_point at) : at_(at) {}
  // A deadline that passes when this one does, or when a stop is requested.
  Deadline OrStop(std::stop_token stop) const { return Deadline(at_, std::move(stop)); }
  // The earlier of this deadline and `duration` from now: one step of a longer wait.
  Deadline AtMost(Clock::duration duration) const { return Deadline(std::min(at_, Clock::now() + duration), stop_); }

  bool Stopped() const { return stop_.stop_requested(); }
  bool Passed() const { return Stopped() || Clock::now() >= at_; }
  // How long a wait may last before it has to look at Passed again. Never negative, and at most kLongest; rounded up,
  // so that a poll for this long does not spin at the end.
  std::chrono::milliseconds Remaining() const {
    const auto now = Clock::now();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(NextLookFrom(now) - now);
    return std::clamp(left, std::chrono::milliseconds(0), kLongest);
  }
  // When a wait has to look at Passed again, as a point in time.
  Clock::time_point NextLook() const { return NextLookFrom(Clock::now()); }
  // The point in time alone, without the stop: for arithmetic, and for waits that nobody stops.
  Clock::time_point at() const { return at_; }

 private:
  Deadline(Clock::time_point at, std::stop_token stop) : at_(at), stop_(std::move(stop)) {}
  Clock::time_point NextLookFrom(Clock::time_point now) const {
    if (!stop_.stop_possible()) return at_;
    return std::min(at_, Stopped() ? now : now + kLook);
  }

  Clock::time_point at_;
  std::stop_token stop_;
};

}  // namespace layercast
