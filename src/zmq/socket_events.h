// What becomes of a socket's connections, as ZeroMQ tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

namespace layercast {

// One thread only.
class SocketEvents {
 public:
  struct Event {
    std::uint16_t number = 0;  // ZMQ_EVENT_...
    std::int32_t value = -1;   // of most, the connection's descriptor
  };
  // Before the socket binds or connects, which must be closed before this is destroyed. `events`: those to tell of. A
  // socket has one of these at most.
  SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int events);

  zmq::socket_t& socket() { return events_; }  // to poll
  std::optional<Event> Next();                 // that has happened already

 private:
  zmq::socket_t events_;
};

}  // namespace layercast
