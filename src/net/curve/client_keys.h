// The client's half of CURVE: sets a socket's keys, and turns what ZeroMQ tells of handshakes that fail into words.
// Used by RPC clients, receivers' control links and the zmq channel.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/net/keys/keys.h"
#include "src/net/limits/connection_limits.h"

namespace layercast {

// Gives a socket that will connect the keys, if there are any. To be called last before it connects: a message is
// longer by what CURVE adds, and maxmsgsize with it.
void ConnectWithKeys(zmq::socket_t& socket, const Keys& keys);

// What a failed handshake means, in a sentence that begins with `peer` ("publisher tcp://..."); empty if it may mean
// anything, such as a peer that was just starting. `event` and `value` are ZeroMQ's (ZMQ_EVENT_HANDSHAKE_FAILED_...).
std::string WordsOfHandshake(const std::string& peer, const Keys& keys, std::uint16_t event, std::int32_t value);

// Watches the handshakes of one socket. ZeroMQ never connects again where the server has said that it does not know the
// key; this does, so that a client is in as soon as its key is admitted. One thread only.
class Admission {
 public:
  // How long after a refusal it asks again.
  static constexpr std::chrono::milliseconds kAskAgain{200};

  Admission(std::string peer, Keys keys) : peer_(std::move(peer)), keys_(std::move(keys)) {}

  enum class Now : std::uint8_t {
    kNothing,  // of handshakes is known, or one has succeeded
    kWaits,    // the server is there, and does not know the key
    kAgain,    // likewise; the socket has connected again, and what was sent must be sent once more
  };
  // To be called now and then until the peer was heard.
  Now Look(zmq::socket_t& socket, ConnectionLimits& limits, const std::string& endpoint);
  // Whether ZeroMQ has given the endpoint up, because the server does not know the key or has no keys where this end
  // has some, or the other way round. The socket then takes no messages, in the first case until the server is asked
  // again.
  bool IsRefused(ConnectionLimits& limits);
  // Why no handshake has succeeded yet: a sentence, or empty.
  const std::string& why() const { return why_; }
  // To be called when the peer is heard.
  void Heard();

 private:
  std::string WordsOf(const ConnectionLimits::FailedHandshake& failed);

  const std::string peer_;
  const Keys keys_;
  std::string why_;
  int broken_off_ = 0;  // handshakes, one after the other
  bool refused_ = false;
  Deadline::Clock::time_point asked_at_{};
};

}  // namespace layercast
