// Watches the only connection of a ZeroMQ socket from below. It tells at once when the connection fails or ends, which
// otherwise only heartbeats would show, and whether bytes arrive before they make up a whole message. Part of
// ZmqFetchingEnd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "src/net/keys/keys.h"
#include "src/net/limits/message_meter.h"
#include "src/net/limits/socket_events.h"

namespace layercast::zmq_channel {

// Resource; one thread only.
class ConnectionMonitor {
 public:
  // Before `socket` connects; `socket` must be closed before this is destroyed (as for SocketEvents). `most_bytes`: the
  // longest message that is allowed, with all its frames. `keys`: the socket's.
  ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes, Keys keys);
  zmq::socket_t& events() { return events_.socket(); }  // to poll
  // What ended the connection; empty as long as it has not ended.
  const std::string& Ended();
  // Whether it was ended in the middle of its handshake, as a publisher ends some when many begin at one time. If so,
  // it counts as not ended: to be called before the socket connects anew.
  bool WasCutShort();
  // Whether bytes have come since the last call, even if only part of a message.
  bool Moved();
  // To be called when a whole message of so many bytes has come.
  void EndMessage(std::size_t bytes);
  // Whether the message that is coming will not end (MessageMeter); if so, this has ended the connection.
  bool IsEndless();

 private:
  SocketEvents events_;
  std::string ended_;
  std::string cut_short_;  // likewise, if that was in the handshake
  const std::uint64_t most_bytes_;
  const Keys keys_;
  std::optional<MessageMeter> meter_;  // once the connection is made
  std::uint64_t received_ = 0;         // bytes that had come at the last call of Moved
};

}  // namespace layercast::zmq_channel
