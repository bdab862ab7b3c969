// Turns any exception into the one error type. Used where exceptions are caught.
#pragma once

#include <exception>

#include "layercast/error.h"

namespace layercast {

// The code is kInternal if `thrown` is not an Error, but a library's exception or a failed allocation.
inline Error AsError(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  return {ErrorCode::kInternal, thrown.what()};
}

}  // namespace layercast
