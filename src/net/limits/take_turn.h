// Receives the messages that wait at a ROUTER socket, but only so many at a time: peers may send without a pause, and
// the thread has other things to do as well. Used by RPC servers and publishers.
#pragma once

#include <cstddef>
#include <string>
#include <zmq.hpp>

#include "src/net/limits/connection_limits.h"

namespace layercast {

// The most that is received at once. The message with which `bytes` is reached is still received whole. Value.
struct Turn {
  int messages;
  std::size_t bytes;
};

// Receives the rest of the message that began with `routing_id`, and calls `take(routing_id, body)` if it has exactly
// one part more, as all messages of this project have. Returns the number of bytes after the routing id.
template <class Take>
std::size_t TakeMessage(zmq::socket_t& socket, ConnectionLimits& limits, zmq::message_t& routing_id, const Take& take) {
  zmq::message_t body;
  std::size_t parts = 0;
  std::size_t bytes = 0;
  for (bool more = routing_id.more(); more; more = body.more(), ++parts) {
    if (!socket.recv(body)) return bytes;
    bytes += body.size();
  }
  limits.Heard(body, bytes, routing_id.to_string_view());
  if (parts == 1) take(routing_id, body);
  return bytes;
}

// Receives messages until there are none left or the turn is over. Returns what ConnectionLimits::Enforce does.
template <class Take>
std::string TakeTurn(zmq::socket_t& socket, ConnectionLimits& limits, const Turn& most, const Take& take) {
  bool all_taken = false;
  std::size_t bytes = 0;
  for (int messages = 0; !all_taken && messages < most.messages && bytes < most.bytes; ++messages) {
    zmq::message_t routing_id;
    all_taken = !socket.recv(routing_id, zmq::recv_flags::dontwait);
    if (!all_taken) bytes += TakeMessage(socket, limits, routing_id, take);
  }
  return limits.Enforce(all_taken);
}

}  // namespace layercast
