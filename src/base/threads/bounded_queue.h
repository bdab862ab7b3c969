// Hands values from one thread to another. While it is full, producers wait (back-pressure). Once it is closed, nothing
// more is accepted. Thread-safe.
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

  // Returns false, with `value` untouched, if the deadline passes before there is room or if the queue is closed.
  bool Push(T&& value, Deadline deadline) {
    std::unique_lock lock(mutex_);
    Await(lock, deadline, [&] { return closed_ || items_.size() < capacity_; });
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(value));
    changed_.notify_all();
    return true;
  }

  // Returns nullopt if the deadline passes before a value comes, or once the queue is closed and drained.
  std::optional<T> Pop(Deadline deadline) {
    std::unique_lock lock(mutex_);
    Await(lock, deadline, [&] { return closed_ || !items_.empty(); });
    return Take();
  }

  // Waits for a value without a deadline. Returns nullopt once the queue is closed and drained.
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

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
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
