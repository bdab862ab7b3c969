// The descriptors that came with a message over a local socket. Used where memory is passed between processes.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "src/base/unique_fd.h"

namespace layercast {

// Appends all that `header` brought, whether they were asked for or not: the kernel has opened them in this process.
inline void TakeDescriptors(msghdr& header, std::vector<UniqueFd>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(fd);
    }
  }
}

}  // namespace layercast
