#include "src/transport/zmq/peer.h"

namespace layercast::zmq_channel {

PeerConnection::PeerConnection(int fd) : fd_(fd), addresses_(Addresses(fd)) {}

void PeerConnection::Cut() const {
  if (!addresses_.empty() && Addresses(fd_) == addresses_) ::shutdown(fd_, SHUT_RDWR);
}

std::string PeerConnection::Addresses(int fd) {
  std::string both;
  for (const bool mine : {true, false}) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    const int failed = mine ? ::getsockname(fd, raw, &length) : ::getpeername(fd, raw, &length);
    if (failed != 0 || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) return {};
    both.append(reinterpret_cast<const char*>(&address), length);
  }
  return both;
}

}  // namespace layercast::zmq_channel
