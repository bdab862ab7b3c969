// What goes on below a socket's only connection: tells at once when it fails or ends, where without it only heartbeats
// would, and what comes before ZeroMQ has a whole message of it. One thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "src/transport/zmq/peer.h"

namespace layercast::zmq_channel {

class ConnectionMonitor {
 public:
  // Before the socket connects. `socket` must be closed before this is destroyed.
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket);
  zmq::socket_t& events() { return events_; }  // to poll
  // What ended the connection, or empty while nothing has.
  const std::string& Ended();
  // Whether bytes have come since the last call, were it some of a message.
  bool Moved();

 private:
  zmq::socket_t events_;
  std::string ended_;
  std::optional<PeerConnection> connection_;  // once it stands
  std::uint64_t received_ = 0;                // by it, at the last call of Moved
};

}  // namespace layercast::zmq_channel
