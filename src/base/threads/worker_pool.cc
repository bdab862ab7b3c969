#include "src/base/threads/worker_pool.h"

#include <atomic>
#include <exception>

#include "src/base/threads/thread_clock.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

thread_local double helpers_core_seconds = 0;

}  // namespace

struct WorkerPool::Loop {
  std::size_t count;
  const std::function<void(std::size_t)>& body;
  std::atomic<std::size_t> next{0};
  std::mutex failure_mutex{};
  std::exception_ptr failure{};     // guarded by failure_mutex
  double helpers_core_seconds = 0;  // guarded by the pool's mutex_

  bool open() const { return next.load(std::memory_order_relaxed) < count; }

  void Run() {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next.store(count);
      }
    }
  }
};

WorkerPool::WorkerPool(std::size_t threads) {
  for (std::size_t i = 1; i < threads; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
  }
}

WorkerPool::~WorkerPool() = default;

double WorkerPool::HelpersCoreSeconds() { return helpers_core_seconds; }

void WorkerPool::Share(std::size_t count, const std::function<void(std::size_t)>& body) {
  const std::lock_guard turn(turn_);
  Loop loop{.count = count, .body = body};
  {
    const std::lock_guard lock(mutex_);
    loop_ = &loop;
  }
  changed_.notify_all();
  loop.Run();
  {
    std::unique_lock lock(mutex_);
    loop_ = nullptr;
    changed_.wait(lock, [this] { return inside_ == 0; });
  }
  helpers_core_seconds += loop.helpers_core_seconds;
  if (loop.failure) std::rethrow_exception(loop.failure);
}

void WorkerPool::Work(const std::stop_token& stop) {
  NameThisThread("lc-pool");
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return loop_ != nullptr && loop_->open(); })) {
    Loop* loop = loop_;
    ++inside_;
    lock.unlock();
    const double began = CoreSecondsOfThisThread();
    loop->Run();
    const double spent = CoreSecondsOfThisThread() - began;
    lock.lock();
    loop->helpers_core_seconds += spent;
    --inside_;
    changed_.notify_all();
  }
}

}  // namespace layercast
