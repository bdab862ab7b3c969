// Calls of one thread, in order. Used by the rank process, whose forward passes and whose staging have a thread each.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "src/base/bounded_queue.h"

namespace layercast {

// Resource; thread-safe. RunUntilClosed is for the thread whose calls they are.
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
