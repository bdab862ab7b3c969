// A client of HTTP that says what a test tells it to say, byte for byte. Header-only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <string_view>

#include "src/base/unique_fd.h"

namespace layercast::testing {

// Resource; one thread only.
class HttpClient {
 public:
  explicit HttpClient(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  bool connected() const { return connected_; }

  HttpClient& Say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return *this;
  }
  HttpClient& Post(const std::string& path, const std::string& body, const std::string& headers = "") {
    return Say("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
               std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body);
  }
  HttpClient& Get(const std::string& path, const std::string& headers = "Host: localhost\r\n") {
    return Say("GET " + path + " HTTP/1.1\r\n" + headers + "\r\n");
  }

  // What came until these words were there, or the end.
  std::string HearUntil(std::string_view words) {
    pollfd wait{socket_.get(), POLLIN, 0};
    char block[4096];
    while (heard_.find(words) == std::string::npos && ::poll(&wait, 1, 20'000) == 1) {
      const ssize_t got = ::recv(socket_.get(), block, sizeof(block), 0);
      if (got <= 0) break;
      heard_.append(block, static_cast<std::size_t>(got));
    }
    return heard_;
  }
  // All that comes until the server ends the connection.
  std::string HearAll() { return HearUntil("\1never\1"); }
  void Leave() { socket_ = UniqueFd(); }

 private:
  UniqueFd socket_;
  bool connected_ = false;
  std::string heard_;
};

}  // namespace layercast::testing
