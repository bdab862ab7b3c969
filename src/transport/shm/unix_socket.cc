#include "src/transport/shm/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/net/passed_descriptors.h"
#include "src/transport/shm/offer_table.h"

namespace layercast::shm_channel {
namespace {

constexpr std::size_t kMaxFds = kMaxSegmentsOfOffer + 1;
}  // namespace

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
  if (fds != nullptr) {
    TakeDescriptors(header, *fds);
    const std::size_t sent = std::min<std::size_t>(message.number, kMaxSegmentsOfOffer) + 1;
    if ((header.msg_flags & MSG_CTRUNC) != 0 && fds->size() < sent) {
      throw OutOfDescriptors("the publisher's memory", sent - fds->size());
    }
  }
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
