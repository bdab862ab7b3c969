// Where weights come from, for errors about what they are: those name tensors and layers, and not who has them.
#pragma once

#include <string>

#include "layercast/error.h"

namespace layercast {

// Errors of the call begin with the source ("publisher tcp://..."), where it has a name.
template <class Call>
auto NamingSource(const std::string& source, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (source.empty()) throw;
    throw Error(error.code(), source + ": " + error.what());
  }
}

}  // namespace layercast
