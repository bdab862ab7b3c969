#include "src/net/limits/peer_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // glibc's tcp_info lacks tcpi_bytes_received
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>

#include "src/base/unique_fd.h"

namespace layercast {
void PeerConnection::Cut() const {
  const UniqueFd held(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));  // ZeroMQ may close its own after the look at whose it is
  const int fd = held ? held.get() : fd_;                 // where no descriptor is left
  if (socket_ != 0 && SocketOf(fd) == socket_) ::shutdown(fd, SHUT_RDWR);
}

bool PeerConnection::HasGone() const {
  pollfd look{fd_, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0 && IsOpen();
}

std::string PeerConnection::PeerName() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (!IsOpen() || ::getpeername(fd_, raw, &length) != 0) return "no connection";
  if (address.ss_family == AF_UNIX) {
    ucred peer{};
    length = sizeof(peer);
    const bool known = ::getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    return known ? "process " + std::to_string(peer.pid) : "a process of this host";
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int failed =
      ::getnameinfo(raw, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
  return failed == 0 ? std::string(host) + ":" + port : "no connection";
}

std::string PeerConnection::Address() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (!IsOpen() || ::getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in&>(address).sin_addr, text, sizeof(text));
  }
  if (address.ss_family == AF_INET6) {
    in6_addr& host = reinterpret_cast<sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&host)) {
      ::inet_ntop(AF_INET, &host.s6_addr[12], text, sizeof(text));
    } else {
      std::fill(std::begin(host.s6_addr) + 8, std::end(host.s6_addr), std::uint8_t{0});
      ::inet_ntop(AF_INET6, &host, text, sizeof(text));
    }
  }
  return text;
}

PeerTraffic PeerConnection::Traffic() const {
  tcp_info before{};
  tcp_info after{};
  socklen_t length = sizeof(before);
  int unread = 0;
  // Bytes may come between two questions.
  const bool known = IsOpen() && ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &before, &length) == 0 &&
                     ::ioctl(fd_, FIONREAD, &unread) == 0 &&
                     ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &after, &length) == 0 && IsOpen();
  if (!known) return {};
  const auto less_unread = [&](std::uint64_t bytes) {
    return bytes - std::min(bytes, static_cast<std::uint64_t>(unread));
  };
  return {.received = after.tcpi_bytes_received,
          .read = less_unread(before.tcpi_bytes_received),
          .perhaps_read = less_unread(after.tcpi_bytes_received),
          .acknowledged = after.tcpi_bytes_acked};
}

std::uint64_t PeerConnection::SocketOf(int fd) {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

}  // namespace layercast
