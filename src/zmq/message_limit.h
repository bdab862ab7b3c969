// Ends those connections of a ZeroMQ socket over which a peer sends a message without end (see MessageMeter). Used by
// the RPC, the control links of sessions and the zmq channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <zmq.hpp>

#include "src/zmq/message_meter.h"
#include "src/zmq/socket_events.h"

namespace layercast {

// Resource; one thread only.
class MessageLimit {
 public:
  // The high-water mark (rcvhwm) for sockets whose messages may be large: so many messages of each connection wait here
  // to be taken, and further ones at their sender.
  static constexpr int kMostUnheard = 2;

  // Before `socket` binds or connects; `socket` must be closed before this is destroyed (as for SocketEvents).
  // `most_bytes`: the longest message that is allowed, with all its frames.
  MessageLimit(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes);

  // To be called for each whole message that was received, with one of the frames that the peer sent.
  void Heard(zmq::message_t& frame);
  // Ends the connections whose message is too long; true if there were any. To be called every MessageMeter::kLook.
  // `all_taken`: no message was left to receive. If some may be left, nothing is checked until each connection has had
  // its turn, because a message that only waits to be taken does have an end.
  bool Enforce(bool all_taken = true);
  // Ends the connection by which this frame came, if it is a TCP connection.
  void End(zmq::message_t& frame);
  // "a message has not ended within N bytes"
  std::string Complaint() const;

 private:
  void TakeEvents();
  std::map<int, MessageMeter>::iterator MeterOf(zmq::message_t& frame);

  SocketEvents events_;
  const std::uint64_t most_bytes_;
  std::map<int, MessageMeter> meters_;  // of the connections, by descriptor
  std::size_t heard_ = 0;               // messages since the last check
};

}  // namespace layercast
