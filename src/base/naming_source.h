// Adds where weights or a model come from to errors about them: such errors name tensors, layers and fields, but not
// who has them. Used by the stager, the registry and named drafts.
#pragma once

#include <string>

#include "layercast/error.h"

namespace layercast {

// Makes the call. Its errors begin with the source ("publisher tcp://..."), if that has a name.
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
