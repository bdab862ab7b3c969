// Turns any exception into the one error type. Used where exceptions are caught.
#pragma once

#include <exception>
#include <new>
#include <system_error>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast {

// The code is kResourceExhausted for a failed allocation, or if there was no thread or descriptor, and kInternal for
// anything else that is not an Error, such as a library's exception.
inline Error AsError(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) return OutOfMemory("an allocation", 0);
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown)) {
    return SystemError(error->code().value(), ErrorCode::kInternal, thrown.what());
  }
  return {ErrorCode::kInternal, thrown.what()};
}

// Makes a call of the host program's, to which what ran out is an Error too. What else the call throws may be the host
// program's own, and passes through.
template <class Call>
decltype(auto) NamingWhatRanOut(const Call& call) {
  const auto rethrow = [](const std::exception& thrown) {
    const Error error = AsError(thrown);
    if (error.code() == ErrorCode::kResourceExhausted) throw Error(error);
  };
  try {
    return call();
  } catch (const std::bad_alloc& thrown) {
    rethrow(thrown);
    throw;
  } catch (const std::system_error& thrown) {
    rethrow(thrown);
    throw;
  }
}

}  // namespace layercast
