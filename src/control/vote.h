// A vote that is yes only if all say yes: whether several engines take the next step together. Used by reload_together.
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

  // Once for each voter. Later yeses change nothing after a no.
  void Yes() {
    const std::lock_guard lock(mutex_);
    if (--missing_ == 0) changed_.notify_all();
  }
  // Whoever it is; the first one's reason is kept. Nothing changes once all have said yes.
  void No(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (why_ || missing_ == 0) return;
    why_ = why;
    changed_.notify_all();
  }
  // Nullopt: not decided yet.
  std::optional<bool> AwaitFor(std::chrono::milliseconds duration) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, duration, [this] { return why_ || missing_ == 0; });
    if (why_) return false;
    return missing_ == 0 ? std::optional(true) : std::nullopt;
  }
  // Of a vote that was decided as no.
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
