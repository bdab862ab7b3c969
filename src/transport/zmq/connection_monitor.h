// What goes on below a socket's only connection: tells at once when it fails or ends, where without it only heartbeats
// would, and what comes before ZeroMQ has a whole message of it. One thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "src/zmq/message_meter.h"
#include "src/zmq/socket_events.h"

namespace layercast::zmq_channel {

class ConnectionMonitor {
 public:
  // As SocketEvents, and MessageMeter.
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes);
  zmq::socket_t& events() { return events_.socket(); }  // to poll
  // What ended the connection, or empty while nothing has.
  const std::string& Ended();
  // Whether bytes have come since the last call, were it some of a message.
  bool Moved();
  // A whole message has come.
  void EndMessage();
  // As MessageMeter's; the connection ends with it.
  bool Exceeded();

 private:
  SocketEvents events_;
  std::string ended_;
  const std::uint64_t most_bytes_;
  std::optional<MessageMeter> meter_;  // of the connection, once it stands
  std::uint64_t received_ = 0;         // by it, at the last call of Moved
};

}  // namespace layercast::zmq_channel
