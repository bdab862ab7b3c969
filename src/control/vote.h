// The vote of those who reload together, a controller's engines or an engine's ranks, on whether they take the next
// step: it is yes only if all say yes. Used by reload_together, and by the engine's reload over its ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>

#include "layercast/error.h"

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
  // Decides the vote as no, and returns whether it was open until then; anybody may call this. The first reason is
  // kept, but one that is kCancelled gives way to any other: it is of a voter that gave up because another had said no.
  // It changes nothing once all have said yes.
  bool No(const Error& why) {
    const std::lock_guard lock(mutex_);
    if (missing_ == 0) return false;
    const bool open = !why_;
    if (open || (IsCancelled(*why_) && !IsCancelled(why))) why_.emplace(why);
    if (open) changed_.notify_all();
    return open;
  }
  // Waits up to `duration` for the decision. Nullopt: it has not been made yet.
  std::optional<bool> AwaitFor(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return why_ || missing_ == 0; });
    if (why_) return false;
    return missing_ == 0 ? std::optional(true) : std::nullopt;
  }
  // The reason for a no; empty if the vote is not decided as no.
  std::optional<Error> why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  static bool IsCancelled(const Error& why) { return why.code() == ErrorCode::kCancelled; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t missing_;       // guarded by mutex_
  std::optional<Error> why_;  // guarded by mutex_
};

}  // namespace layercast
