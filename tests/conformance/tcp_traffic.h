// What this process's sockets have sent over TCP, as the kernel counts it, whatever library they belong to.
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace layercast::test {

// The payload bytes sent on the connections that are open now. Headers and retransmissions do not count.
inline std::uint64_t SentOverTcp() {
  std::uint64_t sent = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info tcp{};
    socklen_t size = sizeof(tcp);
    const int fd = std::stoi(entry.path().filename().string());
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &tcp, &size) != 0) continue;  // it is not a TCP socket
    sent += tcp.tcpi_bytes_sent - tcp.tcpi_bytes_retrans;
  }
  return sent;
}

}  // namespace layercast::test
