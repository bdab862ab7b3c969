// What each connection of a control link costs its publisher: messages that had to be refused, and bytes that it was
// sent and has not taken. Used by the offer service.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
#include <zmq.hpp>

#include "src/base/deadline.h"

namespace layercast {

// Thread-safe. Outlives the ZeroMQ context of the messages that it has charged.
class PeerLedger {
 public:
  // A receiver that is well has one message refused, and goes.
  static constexpr int kMostRefused = 16;
  // Of those who wait for it to be sent, and have not read: what comes on top is not sent, whatever it is.
  static constexpr std::uint64_t kMostUntaken = 32U << 20;

  // One more of its messages was refused. True: it was the last one; it is barred from now on.
  bool NoteRefused(const std::string& routing_id);
  // Nothing that it says is heard.
  bool IsBarred(const std::string& routing_id) const;
  // A message of these bytes to it, which count as untaken until ZeroMQ has given them to the system. nullopt: too many
  // of them wait already.
  std::optional<zmq::message_t> Charge(const std::string& routing_id, std::vector<std::byte> bytes);
  // Forgets those who owe nothing. Refusals are remembered for `memory` after the last one: a connection that is gone
  // says so to nobody.
  void Sweep(std::chrono::milliseconds memory);

 private:
  struct Peer {
    int refused = 0;
    Deadline::Clock::time_point last_refused{};
    std::uint64_t untaken = 0;  // bytes
  };
  struct Parcel {
    std::vector<std::byte> bytes;
    std::string routing_id;
  };
  static void Return(void* bytes, void* ledger);  // on a thread of ZeroMQ's

  mutable std::mutex mutex_;
  std::map<std::string, Peer> peers_;                // by routing id; guarded by mutex_
  std::unordered_map<const void*, Parcel> parcels_;  // under way, by their bytes; guarded by mutex_
};

}  // namespace layercast
