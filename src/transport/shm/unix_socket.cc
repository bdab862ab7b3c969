#include "src/transport/shm/unix_socket.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "layercast/error.h"
#include "src/transport/shm/offer_table.h"

namespace layercast::shm_channel {
namespace {

constexpr int kBacklog = 64;
constexpr std::size_t kMaxFds = kMaxSegmentsOfOffer + 1;

struct Address {
  explicit Address(const std::string& name) {
    address.sun_family = AF_UNIX;
    if (name.empty() || name.size() >= sizeof(address.sun_path)) {
      throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    }
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero byte first: abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  sockaddr_un address{};
  socklen_t length = 0;
};

UniqueFd MakeSocket(int flags) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!socket) throw Error(ErrorCode::kResourceExhausted, std::string("shm: socket: ") + std::strerror(errno));
  return socket;
}

bool IsOurUser(const UniqueFd& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

void TakeFds(msghdr& header, std::vector<UniqueFd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

UniqueFd Listen(std::string& name) {
  std::array<unsigned char, 16> random{};
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw Error(ErrorCode::kResourceExhausted, "shm: no random bytes");
  }
  name = "layercast-" + std::to_string(::getpid()) + "-";
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  UniqueFd socket = MakeSocket(SOCK_NONBLOCK);
  const Address address(name);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    throw Error(ErrorCode::kResourceExhausted, "shm: cannot listen at " + name + ": " + std::strerror(errno));
  }
  return socket;
}

UniqueFd Accept(const UniqueFd& listener) {
  UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket && !IsOurUser(socket)) socket = UniqueFd();
  return socket;
}

UniqueFd Connect(const std::string& name, Deadline deadline) {
  const Address address(name);
  UniqueFd socket = MakeSocket(0);
  // A full backlog makes connect wait; nothing else here does.
  const auto left = std::max(deadline.Remaining(), std::chrono::milliseconds(1));
  const timeval timeout{left.count() / 1000, (left.count() % 1000) * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  int failed = 0;
  do {
    failed = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.length);
  } while (failed != 0 && errno == EINTR && !deadline.Passed());
  if (failed != 0) {
    throw Error(errno == EAGAIN ? ErrorCode::kDeadlineExceeded : ErrorCode::kUnavailable,
                std::string("cannot connect: ") + std::strerror(errno));
  }
  if (!IsOurUser(socket)) throw Error(ErrorCode::kUnavailable, "it belongs to another user");
  return socket;
}

bool SendMessage(const UniqueFd& socket, const Message& message, std::span<const int> fds) {
  Message copy = message;
  iovec data{&copy, sizeof(copy)};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  return ::sendmsg(socket.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(copy));
}

Received ReceiveMessage(const UniqueFd& socket, Message& message, std::vector<UniqueFd>* fds) {
  iovec data{&message, sizeof(message)};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  if (fds != nullptr) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  const ssize_t size = ::recvmsg(socket.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) return errno == EAGAIN || errno == EINTR ? Received::kNothing : Received::kEnd;
  if (fds != nullptr) TakeFds(header, *fds);
  if (size == 0) return Received::kEnd;
  const bool whole =
      size == static_cast<ssize_t>(sizeof(message)) && (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;
  return whole ? Received::kMessage : Received::kGarbage;
}

bool WaitReadable(const UniqueFd& socket, Deadline deadline) {
  do {
    pollfd wanted{socket.get(), POLLIN, 0};
    if (::poll(&wanted, 1, static_cast<int>(deadline.Remaining().count())) > 0) return true;
  } while (!deadline.Passed());
  return false;
}

}  // namespace layercast::shm_channel
