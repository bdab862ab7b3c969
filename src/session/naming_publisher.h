// Errors of what happens with one publisher name it: a channel's own words name another address than its endpoint, or
// none.
#pragma once

#include <string>

#include "layercast/error.h"

namespace layercast {

template <class Call>
auto NamingPublisher(const std::string& endpoint, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(endpoint) != std::string::npos) throw;
    throw Error(error.code(), "publisher " + endpoint + ": " + what);
  }
}

}  // namespace layercast
