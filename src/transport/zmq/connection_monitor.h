// Tells at once when a socket's only connection fails or ends; without it only heartbeats would. One thread only.
#pragma once

#include <string>
#include <zmq.hpp>

namespace layercast::zmq_channel {

class ConnectionMonitor {
 public:
  // Before the socket connects. `socket` must be closed before this is destroyed.
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket);
  zmq::socket_t& events() { return events_; }  // to poll
  // What ended the connection, or empty while nothing has.
  const std::string& Ended();

 private:
  zmq::socket_t events_;
  std::string ended_;
};

}  // namespace layercast::zmq_channel
