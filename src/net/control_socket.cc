#include "src/net/control_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/exhausted.h"
#include "src/net/host_lookup.h"
#include "src/net/passed_descriptors.h"
#include "src/net/poll_for.h"

namespace layercast {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr int kPeerTimeoutMs = 5000;
constexpr std::chrono::seconds kToListen{10};  // for looking up the host to listen on
constexpr std::size_t kMaxDescriptors = 16;    // that have come and were not taken

std::string HexOf(const Token& token) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : token) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

bool ReadHex(std::string_view text, Token& token) {
  if (text.size() != 2 * token.size()) return false;
  for (std::size_t i = 0; i < token.size(); ++i) {
    unsigned value = 0;
    const char* at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) return false;
    token[i] = static_cast<std::byte>(value);
  }
  return true;
}

// Null if there is no such host, or the resolver does not answer in time.
AddressList Resolve(const std::string& host, std::uint16_t port, int flags, Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  std::optional<HostLookup> lookup = LookUpHost(host, std::to_string(port), hints, deadline);
  return lookup ? std::move(lookup->addresses) : AddressList(nullptr, nullptr);
}

std::uint16_t PortOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

std::string_view HostBytes(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr), sizeof(in_addr)};
  }
  if (address.sa_family == AF_INET6) {
    return {reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr), sizeof(in6_addr)};
  }
  return {};
}

sockaddr_storage LocalAddress(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) address = {};
  return address;
}

UniqueFd MakeSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw SystemError(errno, ErrorCode::kResourceExhausted, "a socket");
  return fd;
}

// Waits until a connect under way has ended, and returns 0 or its errno. Throws kDeadlineExceeded.
int FinishConnecting(const UniqueFd& fd, Deadline deadline) {
  pollfd item{fd.get(), POLLOUT, 0};
  while (::poll(&item, 1, static_cast<int>(deadline.AtMost(std::chrono::seconds(1)).Remaining().count())) <= 0) {
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it did not take our connection in time");
  }
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

std::string ControlAddress::Text() const {
  const bool ipv6 = host.find(':') != std::string::npos && host.front() != '[';
  return channel + "://" + (ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port) + "#" + HexOf(key);
}

ControlAddress ControlAddress::Parse(std::string_view channel, const std::string& text) {
  ControlAddress address;
  address.channel = channel;
  const std::string scheme = address.channel + "://";
  const std::size_t hash = text.find('#');
  const std::size_t colon = text.substr(0, hash).rfind(':');
  bool shaped = text.starts_with(scheme) && hash != std::string::npos && colon > scheme.size();
  if (shaped) {
    const char* end = text.data() + hash;
    const auto port = std::from_chars(text.data() + colon + 1, end, address.port);
    shaped = port.ec == std::errc() && port.ptr == end && ReadHex(std::string_view(text).substr(hash + 1), address.key);
  }
  if (!shaped) throw Error(ErrorCode::kUnavailable, "not an address of this channel");
  address.host = text.substr(scheme.size(), colon - scheme.size());
  return address;
}

std::string WithoutKey(const std::string& address) { return address.substr(0, address.find('#')); }

std::string WithKey(const std::string& address, const Token& key) { return address + "#" + HexOf(key); }

Token KeyOf(const std::string& address) {
  Token key;
  const std::size_t hash = address.find('#');
  if (hash != std::string::npos && ReadHex(std::string_view(address).substr(hash + 1), key)) return key;
  throw Error(ErrorCode::kUnavailable, "not an address of this channel");
}

UniqueFd Listen(const std::string& host, ControlAddress& address) {
  const AddressList found = Resolve(host, 0, AI_PASSIVE, Deadline::After(kToListen));
  if (found == nullptr)
    throw Error(ErrorCode::kInvalidArgument, address.channel + ": no such host '" + host + "' to listen on");
  UniqueFd fd = MakeSocket(found->ai_family);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                address.channel + ": cannot listen on '" + host + "': " + std::strerror(errno));
  }
  address.host = host;
  address.port = PortOf(LocalAddress(fd.get()));
  return fd;
}

ControlSocket::ControlSocket(UniqueFd connected) : fd_(std::move(connected)) {
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(fd_.get(), level, option, &value, sizeof(value));
  };
  // On an AF_UNIX socket these fail or have no effect, and are not needed.
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kPeerTimeoutMs);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);  // for a host that vanishes while nothing is sent
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
}

ControlSocket ControlSocket::Connect(const ControlAddress& address, Deadline deadline) {
  const AddressList found = Resolve(address.host, address.port, 0, deadline);
  if (found == nullptr) throw Error(ErrorCode::kUnavailable, "no such host");
  int error = 0;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd = MakeSocket(at->ai_family);
    error = ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) error = FinishConnecting(fd, deadline);
    if (error == 0) return ControlSocket(std::move(fd));
  }
  throw Error(ErrorCode::kUnavailable, std::string("cannot connect: ") + std::strerror(error));
}

std::string ControlSocket::Device() const {
  const sockaddr_storage local = LocalAddress(fd_.get());
  const std::string_view mine = HostBytes(reinterpret_cast<const sockaddr&>(local));
  ifaddrs* devices = nullptr;
  if (::getifaddrs(&devices) != 0) devices = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(devices, &::freeifaddrs);
  for (const ifaddrs* at = devices; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr != nullptr && !mine.empty() && HostBytes(*at->ifa_addr) == mine) return at->ifa_name;
  }
  // 127.0.0.2 and the like are reached by the loopback device too, but are not listed as its addresses.
  const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(local);
  if (local.ss_family == AF_INET && ntohl(ipv4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) return "lo";
  throw Error(ErrorCode::kUnavailable, "no network device has this end's address");
}

void ControlSocket::Send(std::span<const std::byte> message, UniqueFd descriptor) {
  if (descriptor) unsent_descriptors_.push_back({unsent_.size(), std::move(descriptor)});
  for (std::size_t i = 0; i < kLengthBytes; ++i) unsent_.push_back(static_cast<std::byte>(message.size() >> (8 * i)));
  unsent_.insert(unsent_.end(), message.begin(), message.end());
  Flush();
}

void ControlSocket::Flush() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t count = SendSome(sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) sent = unsent_.size();  // the connection is lost: nobody will read it
    if (count <= 0) break;
    sent += static_cast<std::size_t>(count);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (unsent_.empty()) unsent_descriptors_.clear();
  for (UnsentDescriptor& left : unsent_descriptors_) left.at -= sent;
}

ssize_t ControlSocket::SendSome(std::size_t from) {
  const bool with = !unsent_descriptors_.empty() && unsent_descriptors_.front().at == from;
  const std::size_t next = with ? 1 : 0;
  const std::size_t to = next < unsent_descriptors_.size() ? unsent_descriptors_[next].at : unsent_.size();
  iovec data{unsent_.data() + from, to - from};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  if (with) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = unsent_descriptors_.front().fd.get();
    std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  }
  const ssize_t count = ::sendmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (with && count > 0) unsent_descriptors_.erase(unsent_descriptors_.begin());
  return count;
}

std::optional<std::vector<std::byte>> ControlSocket::Receive() {
  while (true) {
    const std::span<const std::byte> rest = std::span(received_).subspan(taken_);
    if (rest.size() >= kLengthBytes) {
      const auto length = ByteReader("length", rest).Get<std::uint32_t>("length");
      if (length > kMaxControlBytes) {
        throw Error(ErrorCode::kCorrupt, "a message of " + std::to_string(length) + " bytes");
      }
      if (rest.size() - kLengthBytes >= length) {
        taken_ += kLengthBytes + length;
        const std::span<const std::byte> message = rest.subspan(kLengthBytes, length);
        return std::vector<std::byte>(message.begin(), message.end());
      }
    }
    if (!Fill()) {
      if (ended_) throw Error(ErrorCode::kUnavailable, "the connection was lost");
      return std::nullopt;
    }
  }
}

bool ControlSocket::Fill() {
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(taken_));
  taken_ = 0;
  std::array<std::byte, kReadBytes> read;
  iovec data{read.data(), read.size()};
  // The kernel ends a read after the bytes that descriptors came with. A peer of ours sends one with a message.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control;
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  ssize_t count = -1;
  do {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    count = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count == 0 || (count < 0 && errno != EAGAIN)) ended_ = true;
  if (count < 0) return false;
  TakeDescriptors(header, descriptors_);
  if (descriptors_.size() > kMaxDescriptors) throw Error(ErrorCode::kCorrupt, "descriptors that nobody asked for");
  if (count == 0) return false;
  received_.insert(received_.end(), read.begin(), read.begin() + count);
  return true;
}

std::vector<std::byte> ControlSocket::AwaitAnswer(Deadline deadline) {
  while (true) {
    Flush();
    if (std::optional<std::vector<std::byte>> message = Receive()) return *std::move(message);
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it did not answer our HELLO in time");
    pollfd item = Events();
    PollFor({&item, 1}, deadline.AtMost(std::chrono::seconds(1)).Remaining());
  }
}

UniqueFd ControlSocket::TakeDescriptor() {
  if (descriptors_.empty()) return {};
  UniqueFd first = std::move(descriptors_.front());
  descriptors_.erase(descriptors_.begin());
  return first;
}

}  // namespace layercast
