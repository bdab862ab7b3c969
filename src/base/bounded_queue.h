// Hands values from one thread to another; full means the producer waits (back-pressure), closed means
// nobody will take or bring any more. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "src/base/deadline.h"

namespace layercast {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  // False when the deadline passes first, or once the queue is closed; `value` is then untouched.
  bool Push(T&& value, Deadline deadline) {
    std::unique_lock lock(mutex_);
    Await(lock, deadline, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }

  // Empty when the deadline passes first, or once the queue is closed and drained.
  std::optional<T> Pop(Deadline deadline) {
    std::unique_lock lock(mutex_);
    Await(lock, deadline, [&] { return closed_ || !items_.empty(); });
    return Take();
  }

  // However long nothing comes. Empty once the queue is closed and drained.
  std::optional<T> PopUntilClosed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return Take();
  }

  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  std::optional<T> Take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    changed_.notify_all();
    return value;
  }

  template <typename Ready>
  void Await(std::unique_lock<std::mutex>& lock, const Deadline& deadline, Ready ready) {
    while (!changed_.wait_until(lock, deadline.NextLook(), ready) && !deadline.Passed()) {
    }
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;  // guarded by mutex_
  bool closed_ = false;  // guarded by mutex_
};

}  // namespace layercast
