// A peer that speaks ZMTP 3.0 by hand, over TCP, for tests of unfinished messages: ZeroMQ itself sends nothing of a
// message before its last frame.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/unique_fd.h"

namespace layercast::testing {

class RawZmtp {
 public:
  // Connects to "tcp://127.0.0.1:PORT", and talks to a ROUTER as a DEALER does.
  static RawZmtp Connect(const std::string& endpoint) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = Loopback(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    return {std::move(fd), "DEALER"};
  }

  // Sends a single message that never ends, until the peer closes the connection. True if the peer did so before 2 GiB,
  // which is far more than any host sends in the few tenths of a second that it takes to notice.
  bool IsCut() {
    constexpr std::size_t kMost = std::size_t{2} << 30;
    std::string frames;
    for (int i = 0; i < 256; ++i) frames += Frame(kMore, std::string(250, 'x'));
    for (std::size_t sent = 0; sent < kMost;) {
      pollfd ready{fd_.get(), POLLIN | POLLOUT, 0};
      if (::poll(&ready, 1, kPatienceMs) != 1) return false;
      if ((ready.revents & ~POLLOUT) != 0) {
        char said[4096];
        if (::recv(fd_.get(), said, sizeof(said), 0) <= 0) return true;
      }
      const std::size_t at = sent % frames.size();
      const ssize_t some = ::send(fd_.get(), frames.data() + at, frames.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (some < 0 && errno != EAGAIN) return true;
      if (some > 0) sent += static_cast<std::size_t>(some);
    }
    return false;
  }

  // Sends the beginning of a message of one frame: `sent` of its bytes.
  void SendPartOfAFrame(std::uint64_t bytes, std::size_t sent) {
    constexpr char kLong = 2;
    std::string frame(1, kLong);
    for (int shift = 56; shift >= 0; shift -= 8) frame += static_cast<char>(bytes >> shift & 0xff);
    Send(frame + std::string(sent, 'x'));
  }

  // Sends a message of one frame, and its last bytes one for each thing that the peer says.
  void SendSlowly(const std::string& body, std::size_t last) {
    const std::string frame = Frame(0, body);
    Send(frame.substr(0, frame.size() - last));
    for (const char byte : frame.substr(frame.size() - last)) {
      char said[4096];
      EXPECT_GT(ReceiveSome(said, sizeof(said)), 0);
      Send({byte});
    }
  }

  // How many bytes the peer had sent by the time that it ended the connection.
  std::size_t ReadToTheEnd() {
    std::string some(1 << 20, '\0');
    std::size_t all = 0;
    ssize_t got = 0;
    while ((got = ReceiveSome(some.data(), some.size())) > 0) all += static_cast<std::size_t>(got);
    EXPECT_TRUE(got == 0 || errno == ECONNRESET);
    return all;
  }

 protected:
  static constexpr int kPatienceMs = 20'000;
  static constexpr char kMore = 1;
  static constexpr char kCommand = 4;

  RawZmtp(UniqueFd fd, const std::string& socket_type) : fd_(std::move(fd)) {
    const timeval patience{kPatienceMs / 1000, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    std::string greeting(64, '\0');
    greeting.replace(0, 12, std::string("\xFF\0\0\0\0\0\0\0\1\x7F\3\0", 12));
    greeting.replace(12, 4, "NULL");
    Send(greeting);
    Receive(greeting.size());
    const std::string type = std::string("\x05READY\x0BSocket-Type\0\0\0\6", 22) + socket_type;
    Send(Frame(kCommand, type));
    Receive(static_cast<unsigned char>(Receive(2)[1]));  // the peer's READY
  }

  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static std::string Frame(char flags, const std::string& body) {
    return std::string{flags, static_cast<char>(body.size())} + body;
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::string Receive(std::size_t bytes) {
    std::string all(bytes, '\0');
    EXPECT_EQ(::recv(fd_.get(), all.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    return all;
  }
  // Receives what is there, as recv does.
  ssize_t ReceiveSome(char* to, std::size_t most) { return ::recv(fd_.get(), to, most, 0); }

 private:
  UniqueFd fd_;
};

// Waits for one DEALER, and talks to it as a ROUTER does.
class RawZmtpServer : public RawZmtp {
 public:
  class Listener {
   public:
    Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
      sockaddr_in at = Loopback(0);
      socklen_t length = sizeof(at);
      EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
      EXPECT_EQ(::listen(fd_.get(), 1), 0);
      EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
      endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    }
    const std::string& endpoint() const { return endpoint_; }

   private:
    friend RawZmtpServer;
    UniqueFd fd_;
    std::string endpoint_;
  };
  explicit RawZmtpServer(const Listener& listener)
      : RawZmtp(UniqueFd(::accept4(listener.fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)), "ROUTER") {}
};

}  // namespace layercast::testing
