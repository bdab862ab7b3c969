// Tells how much of a connection's bytes wait to be handled, and when its peer has begun a message that will not end:
// it has more bytes than a message may have, stays as it is for long, or drips. ZeroMQ limits the size of a frame, but
// not the number of frames in a message, nor the time that it may take: until the last byte has come, it keeps all that
// came, at 64 bytes or more for each frame, and shows it to nobody. Used by ConnectionLimits and ConnectionMonitor.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/deadline.h"
#include "src/net/limits/peer_connection.h"

namespace layercast {

// Meters a TCP connection; of other connections the kernel does not tell how much has come, and nothing is found of
// them. One thread only.
class MessageMeter {
 public:
  using Time = Deadline::Clock::time_point;

  static constexpr std::chrono::milliseconds kLook{100};         // IsEndless is to be called at least this often
  static constexpr std::chrono::milliseconds kPatience{30'000};  // as long as sessions outlive a silent peer
  static constexpr std::uint64_t kSlowest = 64U << 10;           // bytes a second, of a message that takes longer
  // A handshake has no more bytes, and they are not told from a message's. A message of no more costs no more than a
  // peer does that says nothing.
  static constexpr std::uint64_t kSmall = 4096;

  enum class Drips : std::uint8_t {
    kAllowed,  // over a link that is slow: who is connected to is not expected to mean ill
    kEnd,
  };

  // `fd`: the connection's descriptor. `most_bytes`: the longest message that is allowed, with all its frames. A large
  // message may pause for `patience`. If drips end, it may take so long, and a second more for every kSlowest bytes.
  MessageMeter(int fd, std::uint64_t most_bytes, std::chrono::milliseconds patience = kPatience,
               Drips drips = Drips::kAllowed);
  const PeerConnection& connection() const { return connection_; }

  // To be called when a whole message has come over the connection: its bytes, of all frames.
  void EndMessage(std::size_t bytes);
  // Whether any has come yet.
  bool heard() const { return heard_; }
  // "a message has not ended within 1048576 bytes, or has paused for 30000 ms"
  static std::string Complaint(std::uint64_t most_bytes, std::chrono::milliseconds patience = kPatience,
                               Drips drips = Drips::kAllowed);
  // Whether the message that is coming is too long, has paused for too long or takes too long. To be called when all
  // messages that are there have been taken; looks only every kLook, and is false in between.
  bool IsEndless();

  // Asks the kernel how much has come; for what follows.
  void Look();
  const PeerTraffic& traffic() const { return traffic_; }
  // What was read and is not handled: messages that wait to be taken, and what there is of an unfinished one.
  std::uint64_t unhandled() const { return traffic_.read - std::min(traffic_.read, handled_); }
  // When the message that is coming was seen first.
  Time begun() const { return begun_; }

 private:
  bool HasPaused(Time now) const;

  PeerConnection connection_;
  std::uint64_t most_bytes_;
  std::chrono::milliseconds patience_;
  Drips drips_;
  PeerTraffic traffic_;
  bool ended_ = false;  // whether a message has ended since the last judgement
  bool heard_ = false;
  std::uint64_t handled_ = kSmall;  // the bytes of the handshake and of messages that have ended, or a few more
  std::uint64_t read_ = 0;          // the bytes that ZeroMQ had read by the last judgement
  Time judged_;
  Time grown_;
  Time begun_;
};

}  // namespace layercast
