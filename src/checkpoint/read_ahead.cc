#include "src/checkpoint/read_ahead.h"

#include <algorithm>
#include <utility>

#include "src/base/threads/thread_name.h"

namespace layercast {

ReadAhead::ReadAhead(std::vector<std::uint64_t> bytes, std::function<NamedTensor(std::size_t)> read,
                     std::size_t threads, std::uint64_t window_bytes)
    : read_(std::move(read)), bytes_(std::move(bytes)), window_bytes_(window_bytes), slots_(bytes_.size()) {
  for (std::size_t i = 0; i < std::min(threads, bytes_.size()); ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
  }
}

ReadAhead::~ReadAhead() {
  for (std::jthread& thread : threads_) thread.request_stop();
}

std::optional<NamedTensor> ReadAhead::Next() {
  std::unique_lock lock(mutex_);
  if (next_take_ == slots_.size()) return std::nullopt;
  Slot& slot = slots_[next_take_];
  changed_.wait(lock, [&] { return slot.tensor || slot.error; });
  if (slot.error) {
    next_take_ = next_read_ = slots_.size();
    std::rethrow_exception(slot.error);
  }
  ahead_bytes_ -= bytes_[next_take_++];
  std::optional<NamedTensor> tensor = std::exchange(slot.tensor, std::nullopt);
  changed_.notify_all();
  return tensor;
}

bool ReadAhead::MayRead() const {
  if (next_read_ == slots_.size()) return false;
  return next_read_ == next_take_ || ahead_bytes_ + bytes_[next_read_] <= window_bytes_;
}

void ReadAhead::Work(const std::stop_token& stop) {
  NameThisThread("lc-read");
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return MayRead() || next_read_ == slots_.size(); };
  while (changed_.wait(lock, stop, ready) && !stop.stop_requested()) {
    if (next_read_ == slots_.size()) return;
    const std::size_t mine = next_read_++;
    ahead_bytes_ += bytes_[mine];
    lock.unlock();
    Slot read;
    try {
      read.tensor = read_(mine);
    } catch (...) {
      read.error = std::current_exception();
    }
    lock.lock();
    slots_[mine] = std::move(read);
    changed_.notify_all();
  }
}

}  // namespace layercast
