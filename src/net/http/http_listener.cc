#include "src/net/http/http_listener.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/net/zmq/host_and_port.h"

namespace layercast {
namespace {

std::string PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  char port[NI_MAXSERV] = {};
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "?";
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, nullptr, 0, port, sizeof(port), NI_NUMERICSERV);
  return port;
}

}  // namespace

HttpListener::HttpListener(const std::string& bind, bool may_leave_the_host) {
  const std::string address = BindableHostAndPort(
      "HTTP address", bind, may_leave_the_host,
      "and whoever reaches it may generate: bind a loopback address, ask for a key (--http-key-file), or say that "
      "anybody may (--insecure)");
  const std::size_t colon = address.rfind(':');
  address_ = address.substr(0, colon);
  const bool ipv6 = address_.starts_with('[');
  const std::string host = ipv6 ? address_.substr(1, address_.size() - 2) : address_;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* resolved = nullptr;
  if (::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &resolved) != 0) {
    throw Error(ErrorCode::kInvalidArgument, "HTTP address '" + bind + "': no address is known of the host");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(resolved, &::freeaddrinfo);
  socket_ = UniqueFd(::socket(resolved->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_) throw SystemError(errno, ErrorCode::kUnavailable, "a socket");
  const int yes = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(socket_.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 || ::listen(socket_.get(), SOMAXCONN) != 0) {
    throw Error(ErrorCode::kUnavailable, "HTTP address '" + bind + "': it cannot be bound: " + std::strerror(errno));
  }
  address_ += ":" + PortOf(socket_.get());
}

}  // namespace layercast
