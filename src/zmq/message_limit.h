// Ends the connections of a socket whose peers send messages that do not end (MessageMeter).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <zmq.hpp>

#include "src/zmq/message_meter.h"
#include "src/zmq/socket_events.h"

namespace layercast {

// One thread only.
class MessageLimit {
 public:
  // For sockets (rcvhwm) whose messages may be large: of each connection so many wait to be taken, more with their
  // sender.
  static constexpr int kMostUnheard = 2;

  // As SocketEvents, and MessageMeter.
  MessageLimit(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes);

  // A whole message has come; this is a frame of it, of those that the peer sent.
  void Heard(zmq::message_t& frame);
  // To be called every MessageMeter::kLook. True when it has ended a connection. `all_taken`: there was no message
  // left. Otherwise it looks only once each connection has had its turn, since a message that waits to be taken has an
  // end.
  bool Enforce(bool all_taken = true);
  // Ends the connection that this frame came by, where that is TCP.
  void End(zmq::message_t& frame);
  // "a message has not ended within N bytes"
  std::string Complaint() const;

 private:
  void TakeEvents();
  std::map<int, MessageMeter>::iterator MeterOf(zmq::message_t& frame);

  SocketEvents events_;
  const std::uint64_t most_bytes_;
  std::map<int, MessageMeter> meters_;  // of the connections, by descriptor
  std::size_t heard_ = 0;               // messages, since it looked
};

}  // namespace layercast
