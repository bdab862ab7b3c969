// Keeps account of each connection of a ROUTER socket: how many of its messages were refused, and how many bytes were
// sent to it that it has not taken. Used by RPC servers and publishers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/net/limits/peer_connection.h"

namespace layercast {

// Resource; thread-safe. Outlives the ZeroMQ context of the messages that it has charged.
class PeerLedger {
 public:
  // A connection is barred after so many refused messages. A healthy receiver goes away after the first.
  static constexpr int kMostRefused = 16;
  // A connection may leave so many bytes untaken, and one message more, of whatever length: what follows that while it
  // is on its way is sent too. Beyond that, no message is sent to it.
  static constexpr std::uint64_t kMostUntaken = 32U << 20;

  // `longest_message`: no longer one is sent to anybody. So a connection costs kMostUntaken and one such message.
  explicit PeerLedger(std::uint64_t longest_message) : longest_message_(longest_message) {}

  // Notes that one more of the connection's messages was refused, which came over `over`, or by what is not known. If
  // it is barred from now on, returns the first of those that are known.
  std::optional<PeerConnection> NoteRefused(const std::string& routing_id, const PeerConnection& over = {});
  // Bars the connection. Returns false if it was barred before.
  bool Bar(const std::string& routing_id);
  // Whether the connection is barred: its messages are then dropped unread.
  bool IsBarred(const std::string& routing_id) const;
  // Makes a message of these bytes to the connection. They count as untaken until ZeroMQ has given them to the system.
  // nullopt: too many wait already, or the message is too long.
  std::optional<zmq::message_t> Charge(const std::string& routing_id, std::vector<std::byte> bytes);
  // Forgets connections that have taken everything, and were last refused or barred longer ago than `memory`. There is
  // no other way to notice that a connection is gone.
  void Sweep(std::chrono::milliseconds memory);

 private:
  struct Peer {
    int refused = 0;
    PeerConnection refused_over{};  // the first that is known
    Deadline::Clock::time_point last_refused{};
    std::multiset<std::uint64_t> untaken;  // the bytes of each message
    std::uint64_t untaken_bytes = 0;       // of all of them
  };
  struct Parcel {
    std::vector<std::byte> bytes;
    std::string routing_id;
  };
  static void Return(void* bytes, void* ledger);  // ZeroMQ calls it on a thread of its own

  const std::uint64_t longest_message_;
  mutable std::mutex mutex_;
  std::map<std::string, Peer> peers_;                // by routing id; guarded by mutex_
  std::unordered_map<const void*, Parcel> parcels_;  // under way, by their bytes; guarded by mutex_
};

}  // namespace layercast
