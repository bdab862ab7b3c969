// One connection that ZeroMQ owns, identified by its descriptor and by the number that the kernel gave its socket.
// ZeroMQ may close the descriptor at any time, and its number may be used again, so it is used only while it is still
// that socket's. Whoever makes one knows that the descriptor is ZeroMQ's (see ConnectionLimits).
#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace layercast {

// What the kernel has counted of a TCP connection; nothing is known of others, or of one that has ended. Value.
struct PeerTraffic {
  std::uint64_t received = 0;
  std::uint64_t read = 0;          // of these, what ZeroMQ has read: at least so much,
  std::uint64_t perhaps_read = 0;  // and at most so much
  std::uint64_t acknowledged = 0;  // bytes that were sent, and that the peer's kernel has
};

// Value; immutable.
class PeerConnection {
 public:
  PeerConnection() = default;  // one that no longer exists
  explicit PeerConnection(int fd) : fd_(fd), socket_(SocketOf(fd)) {}
  auto operator<=>(const PeerConnection& other) const = default;
  // Whether ZeroMQ still has it.
  bool IsOpen() const { return socket_ != 0 && SocketOf(fd_) == socket_; }
  // Whether the other end has closed it. What it has sent before may still be read.
  bool HasGone() const;
  // Ends the connection: ZeroMQ then drops what it still holds for the peer. This is the only way to make it let go of
  // one peer's messages without closing the socket that all peers share.
  void Cut() const;
  // The other end, for messages: "10.0.0.7:40312", or "process 4711" of this host; "no connection" if it has ended.
  std::string PeerName() const;
  // Who the other end is, whatever its port: "10.0.0.7", or of IPv6 the network of 64 bits, whose addresses are one
  // host's to choose from. Empty if the connection is not TCP or has ended.
  std::string Address() const;
  PeerTraffic Traffic() const;

 private:
  static std::uint64_t SocketOf(int fd);  // 0: it is no socket

  int fd_ = -1;
  std::uint64_t socket_ = 0;
};

}  // namespace layercast
