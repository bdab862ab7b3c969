// The one error type, for whatever the world can cause: a bad file, a wrong message, a dead peer. It is thrown, and
// Layercast catches it only where an RPC, a thread or a language border ends. Value; immutable.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "layercast/export.h"

namespace layercast {

enum class ErrorCode {
  kInvalidArgument,     // the caller's argument or configuration can never work
  kNotFound,            // a file, tensor, version or peer that was named does not exist
  kFailedPrecondition,  // the right call at the wrong moment: calls out of order, a torn engine
  kCorrupt,             // bytes that break their format, or do not match their digest
  kUnavailable,         // a peer that is gone or cannot be reached
  kDeadlineExceeded,    // a wait ended before its event; the message names whom it waited for
  kResourceExhausted,   // a declared bound would be exceeded, or memory, descriptors or threads ran out
  kCancelled,           // somebody asked for the work to stop
  kUnsupported,         // understood, but not offered by this build or peer
  kInternal,            // a bug in Layercast
  kPermissionDenied,    // the key of whoever asks is not known, or has not the role for it; a path that is not allowed
};

// The code's name, as on the wire and in --json output: "invalid_argument", "corrupt", ...
LAYERCAST_PUBLIC std::string_view ErrorCodeName(ErrorCode code);
// The code of that name; kInternal for a name that this release does not know.
LAYERCAST_PUBLIC ErrorCode ErrorCodeNamed(std::string_view name);

class LAYERCAST_PUBLIC Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace layercast
