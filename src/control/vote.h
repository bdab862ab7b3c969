// The vote of several engines on whether they take the next step together: it is yes only if all say yes. Used by
// reload_together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

namespace layercast {

// Resource; thread-safe.
class Vote {
 public:
  explicit Vote(std::size_t voters) : missing_(voters) {}

  // Each voter that agrees calls this once. It changes nothing once somebody has said no.
  void Yes() {
    const std::lock_guard lock(mutex_);
    if (--missing_ == 0) changed_.notify_all();
  }
  // Decides the vote as no; anybody may call this, and the first reason is kept. It changes nothing once all have said
  // yes.
  void No(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_ || missing_ == 0) return;
    why_ = why;
    changed_.notify_all();
  }
  // Waits up to `duration` for the decision. Nullopt: it has not been made yet.
  std::optional<bool> AwaitFor(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return why_ || missing_ == 0; });
    if (why_) return false;
    return missing_ == 0 ? std::optional(true) : std::nullopt;
  }
  // The reason for a no; empty if the vote is not decided as no.
  std::string why() {
    const std::lock_guard lock(mutex_);
    return why_.value_or("");
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t missing_;             // guarded by mutex_
  std::optional<std::string> why_;  // guarded by mutex_
};

}  // namespace layercast
