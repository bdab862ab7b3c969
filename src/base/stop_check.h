// Lets work be given up between its steps.
#pragma once

#include <stop_token>
#include <string>

#include "layercast/error.h"

namespace layercast {

// Throws kCancelled if a stop was requested. `doing` says, for the message, what was under way: "publisher tcp://...,
// opening a session".
inline void ThrowIfStopped(const std::stop_token& stop, const std::string& doing) {
  if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, doing + ": this attempt was given up");
}

}  // namespace layercast
