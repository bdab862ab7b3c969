// Waits for ZeroMQ sockets and file descriptors. Used by every thread that owns a ZeroMQ socket.
#pragma once

#include <cerrno>
#include <chrono>
#include <span>
#include <zmq.hpp>

namespace layercast {

// Waits for any of `items`. A signal that was handled also ends the wait, with no events: the waiting threads live in
// other people's processes, where profilers and child processes send signals.
inline void PollSockets(std::span<zmq::pollitem_t> items, std::chrono::milliseconds timeout) {
  try {
    zmq::poll(items.data(), items.size(), timeout);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
    for (zmq::pollitem_t& item : items) item.revents = 0;
  }
}

}  // namespace layercast
