// Messages that worker threads want the socket's thread to send, and the bell that wakes it. Thread-safe.
#pragma once

#include <sys/eventfd.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/base/unique_fd.h"
#include "src/wire/frames.h"

namespace layercast {

// One session, as a ROUTER socket knows it.
struct SessionKey {
  std::string routing_id;
  std::uint64_t session = 0;
  auto operator<=>(const SessionKey&) const = default;
};

class Outbox {
 public:
  Outbox() : bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

  void Put(SessionKey to, wire::Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(std::move(to), std::move(message));
    }
    Ring();
  }
  void Ring() {
    const std::uint64_t one = 1;
    // Fails only when the counter is full, and then the bell rings already.
    [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof(one));
  }
  // For poll: readable when something was put.
  int fd() const { return bell_.get(); }
  std::vector<std::pair<SessionKey, wire::Message>> TakeAll() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(bell_.get(), &count, sizeof(count));
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  UniqueFd bell_;
  std::mutex mutex_;
  std::vector<std::pair<SessionKey, wire::Message>> messages_;  // guarded by mutex_
};

}  // namespace layercast
