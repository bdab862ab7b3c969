// One TCP connection that ZeroMQ owns, identified by its descriptor and the addresses of both ends. ZeroMQ may close
// the descriptor at any time, and its number may be used again, so it is used only while both addresses are still the
// same.
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
  // The other end, for messages: "10.0.0.7:40312"; "no TCP connection" if it is none or has ended.
  std::string PeerName() const;
  // The bytes that have come over the connection so far, by the kernel's count; 0 if that is not known, because the
  // connection is not TCP or has ended.
  std::uint64_t BytesReceived() const;
  // BytesReceived, less what ZeroMQ has not read yet; 0 if that is not known.
  std::uint64_t BytesRead() const;

 private:
  static std::string Addresses(int fd);  // empty when it is no connected TCP socket
  bool StillOurs() const { return !addresses_.empty() && Addresses(fd_) == addresses_; }
  int fd_;
  std::string addresses_;
};

}  // namespace layercast
