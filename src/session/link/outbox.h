// Messages that worker threads want the socket's thread to send, and the bell that wakes it. Resource; thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/net/wake_up.h"
#include "src/wire/frames.h"

namespace layercast {

// Names one session, as a ROUTER socket knows it. Value.
struct SessionKey {
  std::string routing_id;
  std::uint64_t session = 0;
  auto operator<=>(const SessionKey&) const = default;
};

class Outbox {
 public:
  void Put(SessionKey to, wire::Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.emplace_back(std::move(to), std::move(message));
    }
    wake_up_.Ring();
  }
  WakeUp& wake_up() { return wake_up_; }
  std::vector<std::pair<SessionKey, wire::Message>> TakeAll() {
    wake_up_.Clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  WakeUp wake_up_;
  std::mutex mutex_;
  std::vector<std::pair<SessionKey, wire::Message>> messages_;  // guarded by mutex_
};

}  // namespace layercast
