#include "src/net/http/http_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace layercast {
namespace {

constexpr std::size_t kReadAtOnce = std::size_t{16} << 10;
constexpr std::chrono::milliseconds kToLinger{2'000};
constexpr std::chrono::milliseconds kToEnd{1'000};  // for what is still sent when the server ends

short EventsOf(int fd, short wanted, int timeout_ms) {
  pollfd item{fd, wanted, 0};
  return ::poll(&item, 1, timeout_ms) > 0 ? item.revents : short{0};
}

}  // namespace

HttpConnection::HttpConnection(UniqueFd socket, const HttpBounds& bounds, const WakeUp& ending)
    : socket_(std::move(socket)),
      bounds_(bounds),
      ending_(ending),
      to_ask_(Deadline::After(bounds.to_ask)),
      most_(bounds.head_bytes) {}

// Whether the socket can be read or written before the deadline, and before the server ends.
bool HttpConnection::WaitFor(short events, const Deadline& deadline) const {
  while (true) {
    std::array<pollfd, 2> items{{{socket_.get(), events, 0}, {ending_.fd(), POLLIN, 0}}};
    const int ready = ::poll(items.data(), items.size(), static_cast<int>(deadline.Remaining().count()));
    if (items[1].revents != 0) return false;
    if (items[0].revents != 0) return true;
    if (deadline.Passed() || (ready < 0 && errno != EINTR)) return false;
  }
}

std::size_t HttpConnection::Read(char* to, std::size_t bytes) {
  if (taken_ == read_.size()) {
    too_long_ |= came_ >= most_;
    if (too_long_) return 0;
    if (!WaitFor(POLLIN, to_ask_)) {
      too_slow_ |= to_ask_.Passed();
      return 0;
    }
    read_.resize(std::min(kReadAtOnce, most_ - came_));
    const ssize_t got = ::recv(socket_.get(), read_.data(), read_.size(), 0);
    read_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    came_ += read_.size();
    taken_ = 0;
  }
  const std::size_t some = std::min(bytes, read_.size() - taken_);
  std::memcpy(to, read_.data() + taken_, some);
  taken_ += some;
  return some;
}

bool HttpConnection::Write(std::string_view bytes) {
  const Deadline deadline = Deadline::After(ending() ? kToEnd : bounds_.to_take);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return false;
    const auto slice = std::min(deadline.Remaining(), std::chrono::milliseconds(kToEnd));
    if (EventsOf(socket_.get(), POLLOUT, static_cast<int>(slice.count())) == 0 && (deadline.Passed() || ending())) {
      return false;
    }
  }
  return true;
}

bool HttpConnection::Await(const WakeUp& rung) const {
  while (true) {
    std::array<pollfd, 3> items{{{rung.fd(), POLLIN, 0}, {socket_.get(), POLLRDHUP, 0}, {ending_.fd(), POLLIN, 0}}};
    if (::poll(items.data(), items.size(), -1) < 0 && errno != EINTR) return false;
    if (items[0].revents != 0) return true;
    if (items[1].revents != 0 || items[2].revents != 0) return false;
  }
}

bool HttpConnection::ClientIsThere() const { return EventsOf(socket_.get(), POLLRDHUP, 0) == 0; }

bool HttpConnection::ending() const { return EventsOf(ending_.fd(), POLLIN, 0) != 0; }

void HttpConnection::Linger() {
  ::shutdown(socket_.get(), SHUT_WR);
  const Deadline deadline = Deadline::After(kToLinger);
  std::array<char, kReadAtOnce> dropped;
  for (std::size_t came = 0; came < bounds_.body_bytes && WaitFor(POLLIN, deadline);) {
    const ssize_t got = ::recv(socket_.get(), dropped.data(), dropped.size(), 0);
    if (got <= 0) return;
    came += static_cast<std::size_t>(got);
  }
}

void HttpConnection::Cut() const { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace layercast
