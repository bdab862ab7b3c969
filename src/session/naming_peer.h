// Who is at the other end of a session, for errors: a channel's own words name another address than its endpoint, or
// none.
#pragma once

#include <string>

#include "layercast/error.h"

namespace layercast {

struct PeerName {
  std::string role;  // "publisher", "relay"
  std::string endpoint;

  std::string text() const { return role + " " + endpoint; }
};

// Errors of the call name the peer.
template <class Call>
auto NamingPeer(const PeerName& peer, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(peer.endpoint) != std::string::npos) throw;
    throw Error(error.code(), peer.text() + ": " + what);
  }
}

}  // namespace layercast
