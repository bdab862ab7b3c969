// A receiver that is waiting for bytes, as the publisher's end of the zmq channel sees it.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

#include "src/net/limits/peer_connection.h"

namespace layercast::zmq_channel {

constexpr std::size_t kPiecesUnderWay = 16;  // at most: enough to keep a connection busy; a removal waits for them
constexpr std::size_t kRefillBelow = 8;      // the service sends more when this few are left

// Immutable except for the count. Owned by the service thread and by the pieces on their way.
struct Peer {
  std::string routing_id;
  PeerConnection connection;
  std::atomic<std::size_t> pieces_under_way{0};
};

}  // namespace layercast::zmq_channel
