// Attempts that are given up, because another rank of the engine failed: said on any thread, seen by the one that
// receives. Used by the receiver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <stop_token>

namespace layercast {

// Resource; thread-safe.
class AttemptStop {
 public:
  // An attempt begins. What it is to look at while it waits and works.
  std::stop_token Begin(std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    attempt_ = attempt;
    source_ = std::stop_source();
    if (attempt_ <= cancelled_) source_.request_stop();
    return source_.get_token();
  }
  // That attempt and all before it, also one that has yet to begin: word of it may come first.
  void Cancel(std::uint64_t attempt) {
    const std::lock_guard lock(mutex_);
    cancelled_ = std::max(cancelled_, attempt);
    if (attempt_ <= cancelled_) source_.request_stop();
  }

 private:
  std::mutex mutex_;
  std::uint64_t cancelled_ = 0;  // guarded by mutex_
  std::uint64_t attempt_ = 0;    // guarded by mutex_
  std::stop_source source_;      // of attempt_; guarded by mutex_
};

}  // namespace layercast
