// Waiting for ZeroMQ sockets and file descriptors. In a header alone: the base links no ZeroMQ, those who wait do.
#pragma once

#include <cerrno>
#include <chrono>
#include <span>
#include <zmq.hpp>

namespace layercast {

// Waits for any of `items`; a signal that a handler took also ends the wait, with no events. The threads that wait live
// in other people's processes, whose profilers and children send signals.
inline void PollSockets(std::span<zmq::pollitem_t> items, std::chrono::milliseconds timeout) {
  try {
    zmq::poll(items.data(), items.size(), timeout);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    for (zmq::pollitem_t& item : items) item.revents = 0;
  }
}

}  // namespace layercast
