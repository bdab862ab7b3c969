// What ZeroMQ throws, as an Error that names the peer. Used by the calling ends of RPC and of sessions.
#pragma once

#include <cerrno>
#include <string>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast {

// kResourceExhausted if no descriptor or memory is left for one more connection, else kUnavailable.
inline Error ErrorAt(const std::string& peer, const zmq::error_t& error) {
  const bool exhausted = error.num() == EMFILE || error.num() == ENFILE || error.num() == ENOMEM;
  if (exhausted) return SystemError(error.num(), ErrorCode::kResourceExhausted, peer);
  return {ErrorCode::kUnavailable, peer + ": " + error.what()};
}

}  // namespace layercast
