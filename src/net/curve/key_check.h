// The server's half of CURVE: proves the server's key, and answers who may connect and who may ask for what. It fails
// closed: while nobody answers for the keys, ZeroMQ lets nobody in. Used by RPC servers, publishers, relays and the zmq
// channel, each on the thread that owns its socket.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/net/limits/connection_limits.h"

namespace layercast {

// Resource; one thread only. Without keys it does nothing, and everybody may do everything.
class KeyCheck {
 public:
  // Before `server` binds; must be destroyed before `context`. `whose` begins logs ("engine tcp://..."). Throws what
  // Keys throws, and kUnsupported if this build's ZeroMQ would let strangers in.
  KeyCheck(zmq::context_t& context, zmq::socket_t& server, const Keys& keys, std::string whose);

  // To be polled with the server's socket.
  zmq::pollitem_t item();
  // Answers the handshakes that wait, takes up a list of keys that has changed, and cuts the connections of keys that
  // are no longer in it. Returns whether keys may have gone. To be called every MessageMeter::kLook, and before
  // messages are taken.
  bool Work(ConnectionLimits& limits);
  // The key by which a message came; empty: there is none.
  static std::string UserOf(zmq::message_t& frame);
  bool Knows(std::string_view user) const { return Find(user) != nullptr; }
  // Throws kPermissionDenied, naming key, role and list, unless the key by which the message came may ask for
  // `request`.
  void Expect(zmq::message_t& frame, std::string_view request) const;

 private:
  void Answer();
  void TellOfWaiting(const PublicKey& key);
  const AdmittedKey* Find(std::string_view user) const;

  const std::string whose_;
  std::optional<AdmittedKeys> admitted_;  // empty: there are no keys
  std::optional<zmq::socket_t> handshakes_;
  Deadline::Clock::time_point looked_{};  // when the list was
  bool stale_ = false;                    // connections may be there whose keys are not in the list
  std::set<PublicKey> waiting_;           // clients that the log has told of
};

}  // namespace layercast
