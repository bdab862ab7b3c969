// What happens to the connections of a ZeroMQ socket, as ZeroMQ's socket monitor reports it. Used by ConnectionLimits
// and ConnectionMonitor.
#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

namespace layercast {

// Resource; one thread only.
class SocketEvents {
 public:
  struct Event {
    std::uint16_t number = 0;  // ZMQ_EVENT_...
    std::int32_t value = -1;   // for most events, the connection's descriptor
  };
  // To be made before `socket` binds or connects; `socket` must be closed before this is destroyed. `events`: the flags
  // (ZMQ_EVENT_...) of the events to report. A socket can have only one SocketEvents.
  SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int events);

  zmq::socket_t& socket() { return events_; }  // to poll
  std::optional<Event> Next();                 // the next event that has already happened; never waits

 private:
  zmq::socket_t events_;
};

}  // namespace layercast
