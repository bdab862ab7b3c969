// Ends the connections of a socket whose peers send messages that do not end (MessageMeter).
#pragma once

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
  // As SocketEvents, and MessageMeter.
  MessageLimit(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes);

  // A whole message has come; this is a frame of it, of those that the peer sent.
  void Heard(zmq::message_t& frame);
  // To be called every MessageMeter::kLook, once all messages that are there have been taken. True when it has ended a
  // connection.
  bool Enforce();
  // "a message has not ended within N bytes"
  std::string Complaint() const;

 private:
  void TakeEvents();

  SocketEvents events_;
  const std::uint64_t most_bytes_;
  std::map<int, MessageMeter> meters_;  // of the connections, by descriptor
};

}  // namespace layercast
