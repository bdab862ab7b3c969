// Attempts that are given up, because another rank of the engine failed. Any thread may give one up; the receiving
// thread sees it. Used by the receiver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stop_token>

namespace layercast {

// Resource; thread-safe.
class AttemptStop {
 public:
  // Begins an attempt, and returns the token that it must watch while it waits and works.
  std::stop_token Begin(std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    attempt_ = attempt;
    source_ = std::stop_source();
    if (attempt_ <= cancelled_) source_.request_stop();
    return source_.get_token();
  }
  // Gives up that attempt and all before it. The attempt may also be one that has yet to begin, as the call may
  // overtake the attempt's start.
  void Cancel(std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    cancelled_ = std::max(cancelled_, attempt);
    if (attempt_ <= cancelled_) source_.request_stop();
  }

 private:
  std::mutex mutex_;
  std::uint64_t cancelled_ = 0;  // guarded by mutex_
  std::uint64_t attempt_ = 0;    // guarded by mutex_
  std::stop_source source_;      // attempt_'s; guarded by mutex_
};

}  // namespace layercast
