// Tells when a peer has begun a message that will not end: it has more bytes than a message may have, or stays as it is
// for long. ZeroMQ limits the size of a frame, but not the number of frames in a message, nor the time that it may
// take: until the last byte has come, it keeps all that came, at 64 bytes or more for each frame, and shows it to
// nobody. Used by ConnectionLimits and ConnectionMonitor.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "src/base/deadline.h"
#include "src/net/zmq/peer_connection.h"

namespace layercast {

// Meters a TCP connection; of other connections the kernel does not tell how much has come, and nothing is found of
// them. One thread only.
class MessageMeter {
 public:
  static constexpr std::chrono::milliseconds kLook{100};         // IsEndless is to be called at least this often
  static constexpr std::chrono::milliseconds kPatience{30'000};  // as long as sessions outlive a silent peer

  // `fd`: the connection's descriptor. `most_bytes`: the longest message that is allowed, with all its frames. A large
  // message may pause for `patience`.
  MessageMeter(int fd, std::uint64_t most_bytes, std::chrono::milliseconds patience = kPatience);
  const PeerConnection& connection() const { return connection_; }

  // To be called when a whole message has come over the connection.
  void EndMessage() { ended_ = heard_ = true; }
  // Whether any has come yet.
  bool heard() const { return heard_; }
  // "a message has not ended within 1048576 bytes, or has paused for 30000 ms"
  static std::string Complaint(std::uint64_t most_bytes, std::chrono::milliseconds patience = kPatience);
  // Whether the message that is coming is too long, or has paused for too long. To be called when all messages that are
  // there have been taken; looks only every kLook, and is false in between.
  bool IsEndless();

 private:
  using Time = Deadline::Clock::time_point;

  bool HasPaused(Time now, std::uint64_t read);

  PeerConnection connection_;
  std::uint64_t most_bytes_;
  std::chrono::milliseconds patience_;
  bool ended_ = false;  // whether a message has ended since the last look
  bool heard_ = false;
  std::uint64_t begun_ = 0;  // the bytes that came before the message that is coming, or more
  std::uint64_t read_ = 0;   // the bytes that ZeroMQ had read by the last look
  Time last_look_;
  Time last_grown_;
};

}  // namespace layercast
