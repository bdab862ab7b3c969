// A fixed set of threads that share loops. Thread-safe; one loop runs at a time, others wait their turn;
// a loop of one call, or without threads to share it, runs where it was asked for.
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
  // What pools' threads have computed so far for loops of the calling thread.
  static double HelpersCoreSeconds();

  // Calls body(0) ... body(count - 1), each once, in any order and on any thread, and returns when all
  // have returned. The first exception is rethrown here, after the calls under way have ended; the rest
  // are not started. Must not be called from inside a body.
  template <typename Body>
  void For(std::size_t count, Body&& body) {
    if (count > 1 && !workers_.empty()) return Share(count, std::ref(body));
    for (std::size_t i = 0; i < count; ++i) body(i);  // small tensors are many: they wait for nobody
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
