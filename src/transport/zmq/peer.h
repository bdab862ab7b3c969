// A peer at the other end of a TCP connection that ZeroMQ owns: the connection itself; and, at the publisher, a
// receiver with work.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace layercast::zmq_channel {

// One TCP connection, by number and both addresses. ZeroMQ owns the descriptor and closes it when it likes; so it is
// used only while both addresses are still the same. Value; immutable.
class PeerConnection {
 public:
  explicit PeerConnection(int fd);
  // Ends the connection: ZeroMQ then drops what it still holds for the peer. This is the only way to make it let go of
  // one slow peer's messages without closing the socket that all peers share.
  void Cut() const;
  // What has come by it so far, by the kernel's count; 0 where that cannot be told any more.
  std::uint64_t BytesReceived() const;

 private:
  static std::string Addresses(int fd);  // empty when it is no connected TCP socket
  bool StillOurs() const { return !addresses_.empty() && Addresses(fd_) == addresses_; }
  int fd_;
  std::string addresses_;
};

constexpr std::size_t kPiecesUnderWay = 16;  // at most: keeps the connection busy, and is what a removal waits for
constexpr std::size_t kRefillBelow = 8;      // the service sends more when this few are left

// Immutable but for the count. Owned by the service thread and by the pieces on their way.
struct Peer {
  std::string routing_id;
  PeerConnection connection;
  std::atomic<std::size_t> pieces_under_way{0};
};

}  // namespace layercast::zmq_channel
