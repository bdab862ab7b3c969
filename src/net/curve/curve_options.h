// How keys become options of a ZeroMQ socket. Used by both halves of CURVE.
#pragma once

#include <array>
#include <cstddef>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/net/keys/key.h"

namespace layercast {

// Throws kUnsupported where ZeroMQ was built without CURVE.
inline void SetKey(zmq::socket_t& socket, int option, const std::array<std::byte, kKeyBytes>& key) {
  if (zmq_setsockopt(socket.handle(), option, key.data(), key.size()) == 0) return;
  throw Error(ErrorCode::kUnsupported, std::string("this build's ZeroMQ takes no keys: ") + zmq_strerror(zmq_errno()));
}

// CURVE makes each frame longer by a command name, a nonce, flags and a code of 16 bytes, which count for maxmsgsize.
inline void MakeRoomForCurve(zmq::socket_t& socket) {
  constexpr std::int64_t kMostAdded = 64;
  const std::int64_t most = socket.get(zmq::sockopt::maxmsgsize);
  if (most >= 0) socket.set(zmq::sockopt::maxmsgsize, most + kMostAdded);
}

}  // namespace layercast
