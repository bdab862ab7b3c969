// A TCP connection to a socket that listens, which sends what it likes: for tests of what strangers cost.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "src/base/unique_fd.h"

namespace layercast::testing {

// The beginning of ZMTP 3.0: `mechanism` is "NULL" or "CURVE".
inline std::string ZmtpGreeting(const std::string& mechanism) {
  std::string greeting(64, '\0');
  greeting.replace(0, 12, std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\0", 12));
  greeting.replace(12, mechanism.size(), mechanism);
  return greeting;
}

class RawPeer {
 public:
  // Connects to "tcp://127.0.0.1:PORT". `before` is called when it has its own descriptor.
  explicit RawPeer(const std::string& endpoint, const std::function<void()>& before = [] {}) {
    before();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  }
  // What the connection takes of it at once.
  void Send(const std::string& bytes) const {
    static_cast<void>(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  // Whether the other end says this in time. A message must not be sent before its READY has come: ZeroMQ ends the
  // connection if it reads one before it has sent that.
  bool Hears(const std::string& what) const {
    constexpr int kHearsMs = 20'000;
    std::string all;
    for (pollfd ready{fd_.get(), POLLIN, 0}; all.find(what) == std::string::npos;) {
      char said[4096];
      const ssize_t some = ::poll(&ready, 1, kHearsMs) > 0 ? ::recv(fd_.get(), said, sizeof(said), MSG_DONTWAIT) : 0;
      if (some <= 0) return false;
      all.append(said, static_cast<std::size_t>(some));
    }
    return true;
  }
  // Whether the other end has ended it by now.
  bool IsCut() const {
    for (pollfd ready{fd_.get(), POLLIN, 0}; ::poll(&ready, 1, 0) > 0;) {
      char said[4096];
      if (::recv(fd_.get(), said, sizeof(said), MSG_DONTWAIT) <= 0) return true;
    }
    return false;
  }

 private:
  UniqueFd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
};

}  // namespace layercast::testing
