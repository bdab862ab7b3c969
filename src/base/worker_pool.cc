#include "src/base/worker_pool.h"
#include "src/base/thread_name.h"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <exception>

namespace layercast {

struct WorkerPool::Loop {
  std::size_t count;
  const std::function<void(std::size_t)>& body;
  std::atomic<std::size_t> next{0};
  std::mutex failure_mutex{};
  std::exception_ptr failure{};  // guarded by failure_mutex

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

double WorkerPool::core_seconds() {
  double seconds = 0;
  for (std::jthread& worker : workers_) {
    clockid_t clock{};
    timespec spent{};
    if (::pthread_getcpuclockid(worker.native_handle(), &clock) != 0) continue;
    if (::clock_gettime(clock, &spent) == 0) {
      seconds += static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
    }
  }
  return seconds;
}

void WorkerPool::For(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count <= 1 || workers_.empty()) {  // small tensors are many: they wait for nobody
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
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
  if (loop.failure) std::rethrow_exception(loop.failure);
}

void WorkerPool::Work(const std::stop_token& stop) {
  NameThisThread("lc-pool");
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return loop_ != nullptr && loop_->open(); })) {
    Loop* loop = loop_;
    ++inside_;
    lock.unlock();
    loop->Run();
    lock.lock();
    --inside_;
    changed_.notify_all();
  }
}

}  // namespace layercast
