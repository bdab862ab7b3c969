// A fixed set of threads that share loops. Resource; thread-safe. One loop runs at a time, and others wait for their
// turn. A loop of a single call, or in a pool without threads, runs on the calling thread without waiting.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace layercast {

class WorkerPool {
 public:
  // `threads` counts the caller of For, who works too: 1 means no thread is started.
  explicit WorkerPool(std::size_t threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  std::size_t threads() const { return workers_.size() + 1; }
  // The core seconds that threads of all pools have computed so far for loops of the calling thread.
  static double HelpersCoreSeconds();

  // Calls body(0) ... body(count - 1), each once, in any order and on any thread, and returns when all
  // have returned. After an exception, calls under way end, the rest are not started, and the first exception
  // is rethrown here. Must not be called from inside a body.
  template <typename Body>
  void For(std::size_t count, Body&& body) {
    if (count > 1 && !workers_.empty()) return Share(count, std::ref(body));
    for (std::size_t i = 0; i < count; ++i) body(i);  // there are many small tensors, and none waits for its turn
  }

 private:
  struct Loop;
  void Share(std::size_t count, const std::function<void(std::size_t)>& body);
  void Work(const std::stop_token& stop);

  std::mutex turn_;  // held for the length of one loop
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Loop* loop_ = nullptr;               // guarded by mutex_
  std::size_t inside_ = 0;             // workers inside loop_; guarded by mutex_
  std::vector<std::jthread> workers_;  // last: joined before the rest goes
};

}  // namespace layercast
