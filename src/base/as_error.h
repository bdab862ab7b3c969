// Whatever was thrown, as the one error type.
#pragma once

#include <exception>

#include "layercast/error.h"

namespace layercast {

// kInternal for what is no Error: a library's, an allocation that failed.
inline Error AsError(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  return {ErrorCode::kInternal, thrown.what()};
}

}  // namespace layercast
