#include "src/net/zmq/peer_connection.h"

#include <fcntl.h>
#include <linux/tcp.h>  // glibc's tcp_info lacks tcpi_bytes_received
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "src/base/unique_fd.h"

namespace layercast {
void PeerConnection::Cut() const {
  const UniqueFd held(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));  // ZeroMQ may close its own after the look at whose it is
  const int fd = held ? held.get() : fd_;                 // where no descriptor is left
  if (socket_ != 0 && SocketOf(fd) == socket_) ::shutdown(fd, SHUT_RDWR);
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

std::uint64_t PeerConnection::BytesReceived() const {
  tcp_info told{};
  socklen_t length = sizeof(told);
  if (!IsOpen() || ::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &told, &length) != 0) return 0;
  return told.tcpi_bytes_received;
}

std::uint64_t PeerConnection::BytesRead() const {
  const std::uint64_t received = BytesReceived();  // asked first, so that bytes that come meanwhile count as unread
  int unread = 0;
  if (!IsOpen() || ::ioctl(fd_, FIONREAD, &unread) != 0) return 0;
  return received - std::min(received, static_cast<std::uint64_t>(unread));
}

std::uint64_t PeerConnection::SocketOf(int fd) {
  std::uint64_t cookie = 0;
  socklen_t length = sizeof(cookie);
  return ::getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) == 0 ? cookie : 0;
}

}  // namespace layercast
