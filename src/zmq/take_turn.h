// Taking what waits at a ROUTER, but no more than a turn of it: peers may send without a pause, and other things are to
// be done in between.
#pragma once

#include <cstddef>
#include <zmq.hpp>

#include "src/zmq/message_limit.h"

namespace layercast {

// The most that is taken at once. The message that reaches `bytes` still is.
struct Turn {
  int messages;
  std::size_t bytes;
};

// Takes a peer's message whole, and calls `take(routing_id, body)` if it has the one part that messages of ours have.
// How many bytes it had.
template <class Take>
std::size_t TakeMessage(zmq::socket_t& socket, MessageLimit& limit, zmq::message_t& routing_id, const Take& take) {
  zmq::message_t body;
  std::size_t parts = 0;
  std::size_t bytes = 0;
  for (bool more = routing_id.more(); more; more = body.more(), ++parts) {
    if (!socket.recv(body)) return bytes;
    bytes += body.size();
  }
  limit.Heard(body);
  if (parts == 1) take(routing_id, body);
  return bytes;
}

// Takes messages as long as there are any and the turn lasts. True: a peer has lost its connection (MessageLimit).
template <class Take>
bool TakeTurn(zmq::socket_t& socket, MessageLimit& limit, const Turn& most, const Take& take) {
  bool all_taken = false;
  std::size_t bytes = 0;
  for (int messages = 0; !all_taken && messages < most.messages && bytes < most.bytes; ++messages) {
    zmq::message_t routing_id;
    all_taken = !socket.recv(routing_id, zmq::recv_flags::dontwait);
    if (!all_taken) bytes += TakeMessage(socket, limit, routing_id, take);
  }
  return limit.Enforce(all_taken);
}

}  // namespace layercast
