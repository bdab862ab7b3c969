// Names the peer at the other end of a session in errors. A channel's own errors name another address than the peer's
// endpoint, or none. Used by the receiving half of sessions.
#pragma once

#include <string>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/net/zmq/error_at.h"

namespace layercast {

struct PeerName {
  std::string role;  // "publisher", "relay"
  std::string endpoint;

  std::string text() const { return role + " " + endpoint; }
};

// Makes a call whose errors name the peer, those of ZeroMQ too: there may be no descriptor left for one more
// connection.
template <class Call>
auto NamingPeer(const PeerName& peer, const Call& call) {
  try {
    return call();
  } catch (const Error& error) {
    const std::string what = error.what();
    if (what.find(peer.endpoint) != std::string::npos) throw;
    throw Error(error.code(), peer.text() + ": " + what);
  } catch (const zmq::error_t& error) {
    throw ErrorAt(peer.text(), error);
  }
}

}  // namespace layercast
