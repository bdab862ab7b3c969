// Messages that worker threads want the socket's thread to send, and the bell that wakes it. Resource; thread-safe.
#pragma once

#include <algorithm>
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
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = messages_.empty();
      messages_.emplace_back(std::move(to), std::move(message));
    }
    if (first) wake_up_.Ring();
  }
  // Puts tensors of a stream into the message that waits for the receiver, if that one also has some: small tensors are
  // many, and a message costs more than one of them.
  void Put(const SessionKey& to, wire::ReadyTensor tensor) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = messages_.empty();
      const auto last = std::ranges::find(messages_.rbegin(), messages_.rend(), to, &Addressed::first);
      auto* const ready = last == messages_.rend() ? nullptr : std::get_if<wire::TensorsReady>(&last->second);
      if (ready != nullptr && ready->tensors.size() < kMostJoined) {
        ready->tensors.push_back(std::move(tensor));
      } else {
        messages_.emplace_back(to, wire::TensorsReady{{std::move(tensor)}});
      }
    }
    if (first) wake_up_.Ring();
  }
  WakeUp& wake_up() { return wake_up_; }
  std::vector<std::pair<SessionKey, wire::Message>> TakeAll() {
    wake_up_.Clear();
    const std::lock_guard lock(mutex_);
    return std::exchange(messages_, {});
  }

 private:
  using Addressed = std::pair<SessionKey, wire::Message>;
  static constexpr std::size_t kMostJoined = 64;

  WakeUp wake_up_;
  std::mutex mutex_;
  std::vector<Addressed> messages_;  // guarded by mutex_
};

}  // namespace layercast
