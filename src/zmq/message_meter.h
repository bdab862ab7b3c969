// Tells when a peer has sent more bytes over one connection than a message may have, without ending the message. ZeroMQ
// limits the size of a frame, but not the number of frames in a message: until the last one has come, it keeps them
// all, at 64 bytes or more each, and shows them to nobody. Used by MessageLimit and ConnectionMonitor.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/base/deadline.h"
#include "src/zmq/peer_connection.h"

namespace layercast {

// Meters a TCP connection; of other connections the kernel does not tell how much has come, and they are never found to
// exceed the limit. One thread only.
class MessageMeter {
 public:
  static constexpr std::chrono::milliseconds kLook{100};  // Exceeded is to be called at least this often

  // `fd`: the connection's descriptor. `most_bytes`: the longest message that is allowed, with all its frames.
  MessageMeter(int fd, std::uint64_t most_bytes);
  const PeerConnection& connection() const { return connection_; }

  // To be called when a whole message has come over the connection.
  void EndMessage() { ended_ = true; }
  // Whether the message that is coming is too long. To be called when all messages that are there have been taken;
  // looks only every kLook, and is false in between.
  bool Exceeded();

 private:
  PeerConnection connection_;
  std::uint64_t most_bytes_;
  bool ended_ = false;       // whether a message has ended since the last look
  std::uint64_t begun_ = 0;  // the bytes that came before the message that is coming, or more
  std::uint64_t read_ = 0;   // the bytes that ZeroMQ had read by the last look
  Deadline::Clock::time_point next_look_;
};

}  // namespace layercast
