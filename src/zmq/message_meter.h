// Tells of one connection when more has come by it than a message may have, and no end of it. ZeroMQ bounds a frame,
// but not how many of them a message has; until the last has come it keeps them all, at 64 bytes each and more, and
// shows nobody.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/base/deadline.h"
#include "src/zmq/peer_connection.h"

namespace layercast {

// Of a TCP connection: the kernel does not tell what comes by others. One thread only.
class MessageMeter {
 public:
  static constexpr std::chrono::milliseconds kLook{100};  // how often to ask for Exceeded, at least

  // `most_bytes`: of a message, with all its frames.
  MessageMeter(int fd, std::uint64_t most_bytes);
  const PeerConnection& connection() const { return connection_; }

  // A whole message has come by it.
  void EndMessage() { ended_ = true; }
  // Whether one is too long. To be asked once all messages that are there have been taken.
  bool Exceeded();

 private:
  PeerConnection connection_;
  std::uint64_t most_bytes_;
  bool ended_ = false;       // a message, since the last look
  std::uint64_t begun_ = 0;  // bytes before the message that comes, at most
  std::uint64_t read_ = 0;   // at the last look
  Deadline::Clock::time_point next_look_;
};

}  // namespace layercast
