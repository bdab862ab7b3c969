#include "src/net/local_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast {
namespace {

constexpr int kBacklog = 64;

struct AbstractName {
  explicit AbstractName(const std::string& name) {
    address.sun_family = AF_UNIX;
    if (name.empty() || name.size() >= sizeof(address.sun_path)) {
      throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    }
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero byte before it makes it abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  sockaddr_un address{};
  socklen_t length = 0;
};

UniqueFd MakeLocalSocket(int type) {
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!socket) throw SystemError(errno, ErrorCode::kResourceExhausted, "a socket");
  return socket;
}

// The process, user and group that made the other end, as this process's namespaces number them; {0, -1, -1} if that is
// not known.
ucred PeerOf(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer = {0, uid_t(-1), gid_t(-1)};
  return peer;
}

}  // namespace

std::string WhyNotLocal(const HostIdentity& mine, const HostIdentity& theirs) {
  if (mine.boot_id.empty() || mine.boot_id != theirs.boot_id) return "not on the same host";
  if (mine.network.empty() || mine.network != theirs.network) return "in another network namespace";
  if (mine.user != theirs.user) return "run by another user";
  return {};
}

UniqueFd ListenLocally(int type, std::string& name) {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw Error(ErrorCode::kResourceExhausted, "no random bytes");
  }
  name = "layercast-" + std::to_string(::getpid()) + "-";
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  UniqueFd socket = MakeLocalSocket(type | SOCK_NONBLOCK);
  const AbstractName address(name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    throw SystemError(errno, ErrorCode::kResourceExhausted, "cannot listen at " + name);
  }
  return socket;
}

UniqueFd AcceptLocally(const UniqueFd& listener) {
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && !IsOurUser(socket.get())) socket = UniqueFd();
  return socket;
}

UniqueFd ConnectLocally(int type, const std::string& name, Deadline deadline) {
  const AbstractName address(name);
  UniqueFd socket = MakeLocalSocket(type);
  // connect waits only if the listener's backlog is full, and fails with EAGAIN when it has waited for `left`.
  const auto left = std::max(deadline.Remaining(), std::chrono::milliseconds(1));
  const timeval timeout{left.count() / 1000, (left.count() % 1000) * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int failed = 0;
  do {
    failed = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length);
  } while (failed != 0 && (errno == EINTR || errno == EAGAIN) && !deadline.Passed());
  if (failed != 0) {
    throw Error(errno == EAGAIN ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                std::string("cannot connect: ") + std::strerror(errno));
  }
  if (!IsOurUser(socket.get())) throw Error(ErrorCode::kUnavailable, "it belongs to another user");
  return socket;
}

bool IsOurUser(int socket) { return PeerOf(socket).uid == ::geteuid(); }

bool IsWithinThisProcess(int socket) { return ProcessOf(socket) == ::getpid(); }
pid_t ProcessOf(int socket) { return PeerOf(socket).pid; }

}  // namespace layercast
