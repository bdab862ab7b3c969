// One TCP connection that ZeroMQ owns, by number and both addresses. ZeroMQ closes the descriptor when it likes; so it
// is used only while both addresses are still the same.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace layercast {

// Value; immutable.
class PeerConnection {
 public:
  explicit PeerConnection(int fd);
  // Ends the connection: ZeroMQ then drops what it still holds for the peer. This is the only way to make it let go of
  // one peer's messages without closing the socket that all peers share.
  void Cut() const;
  // What has come by it so far, by the kernel's count; 0 where that cannot be told (any more): it tells of TCP alone.
  std::uint64_t BytesReceived() const;
  // ... without what ZeroMQ has not read yet.
  std::uint64_t BytesRead() const;

 private:
  static std::string Addresses(int fd);  // empty when it is no connected TCP socket
  bool StillOurs() const { return !addresses_.empty() && Addresses(fd_) == addresses_; }
  int fd_;
  std::string addresses_;
};

}  // namespace layercast
