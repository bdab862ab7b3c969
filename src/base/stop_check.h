// What work that somebody else may give up asks between its steps.
#pragma once

#include <stop_token>
#include <string>

#include "layercast/error.h"

namespace layercast {

// Throws kCancelled once a stop was asked for. `doing`: "publisher tcp://..., opening a session".
inline void ThrowIfStopped(const std::stop_token& stop, const std::string& doing) {
  if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, doing + ": this attempt was given up");
}

}  // namespace layercast
