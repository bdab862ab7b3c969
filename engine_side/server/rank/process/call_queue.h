// What a rank's threads are told to do. Used by the rank's process.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "src/base/threads/bounded_queue.h"

namespace layercast {

// Calls that one thread runs, in order.
struct CallQueue : BoundedQueue<std::function<void()>> {
  CallQueue() : BoundedQueue(1024) {}
  void Put(std::function<void()> call) { Push(std::move(call), Deadline::After(std::chrono::hours(24))); }  // for ever
  void RunUntilClosed() {
    while (const auto call = PopUntilClosed()) (*call)();
  }
};

}  // namespace layercast
