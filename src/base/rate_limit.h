// How often something may be said: the first few times at once, then once a second. Used by the log for warnings and
// errors that repeat, and by a publisher for what receivers do wrong.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "src/base/deadline.h"

namespace layercast {

// One thread only.
class RateLimit {
 public:
  static constexpr int kAtOnce = 20;

  // nullopt: not now. Otherwise how many times before this one were left out.
  std::optional<std::uint64_t> Admit(Deadline::Clock::time_point now) {
    Refill(now);
    if (left_ == 0) {
      ++left_out_;
      return std::nullopt;
    }
    --left_;
    return std::exchange(left_out_, 0);
  }
  // Whether so much time has passed that a few may be said at once again.
  bool Idle(Deadline::Clock::time_point now) const { return left_ + SecondsUntil(now) >= kAtOnce; }

 private:
  void Refill(Deadline::Clock::time_point now) {
    const std::int64_t seconds = SecondsUntil(now);
    if (seconds <= 0) return;
    left_ = static_cast<int>(std::min<std::int64_t>(kAtOnce, left_ + seconds));
    refilled_ = now;
  }
  std::int64_t SecondsUntil(Deadline::Clock::time_point now) const {
    return std::chrono::duration_cast<std::chrono::seconds>(now - refilled_).count();
  }

  int left_ = kAtOnce;  // how many may still be said at once
  Deadline::Clock::time_point refilled_{};
  std::uint64_t left_out_ = 0;
};

// The same for each of many kinds of things that are said. Resource; thread-safe.
class RateLimits {
 public:
  // How many kinds are told apart at a time. What else comes then counts as one kind.
  static constexpr std::size_t kMostKinds = 256;

  // What is of one kind has one key. The answer is RateLimit's, of that kind.
  std::optional<std::uint64_t> Admit(const std::string& key, Deadline::Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (!limits_.contains(key) && limits_.size() >= kMostKinds) {
      std::erase_if(limits_, [now](auto& one) { return one.second.Idle(now); });
      if (limits_.size() >= kMostKinds) return others_.Admit(now);
    }
    return limits_[key].Admit(now);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, RateLimit> limits_;  // guarded by mutex_
  RateLimit others_;                         // guarded by mutex_
};

}  // namespace layercast
