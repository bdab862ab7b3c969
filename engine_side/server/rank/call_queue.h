// A queue of calls that one thread runs, in order. Used by the rank process, which has one thread for forward passes
// and one for staging.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "src/base/threads/bounded_queue.h"

namespace layercast {

// Resource; thread-safe, except that RunUntilClosed is for the one thread that runs the calls.
class CallQueue {
 public:
  using Call = std::function<void()>;

  void Put(Call call) { queue_.Push(std::move(call), Deadline::After(kForever)); }
  void RunUntilClosed() {
    while (std::optional<Call> call = queue_.PopUntilClosed()) (*call)();
  }
  void Close() { queue_.Close(); }

 private:
  static constexpr std::size_t kQueuedCalls = 1024;
  static constexpr std::chrono::hours kForever{24};

  BoundedQueue<Call> queue_{kQueuedCalls};
};

}  // namespace layercast
