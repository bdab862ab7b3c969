#include "src/zmq/peer_connection.h"

#include <linux/tcp.h>  // glibc's tcp_info lacks tcpi_bytes_received
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

#include <algorithm>

namespace layercast {

PeerConnection::PeerConnection(int fd) : fd_(fd), addresses_(Addresses(fd)) {}

void PeerConnection::Cut() const {
  if (StillOurs()) ::shutdown(fd_, SHUT_RDWR);
}

std::string PeerConnection::PeerName() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  const bool known =
      StillOurs() && ::getpeername(fd_, raw, &length) == 0 &&
      ::getnameinfo(raw, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0;
  return known ? std::string(host) + ":" + port : "no TCP connection";
}

std::uint64_t PeerConnection::BytesReceived() const {
  tcp_info told{};
  socklen_t length = sizeof(told);
  if (!StillOurs() || ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &told, &length) != 0) return 0;
  return told.tcpi_bytes_received;
}

std::uint64_t PeerConnection::BytesRead() const {
  const std::uint64_t received = BytesReceived();  // asked first, so that bytes that come meanwhile count as unread
  int unread = 0;
  if (!StillOurs() || ::ioctl(fd_, FIONREAD, &unread) != 0) return 0;
  return received - std::min(received, static_cast<std::uint64_t>(unread));
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

}  // namespace layercast
