#include "engine_side/server/group/json_stream.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace layercast {
namespace {

constexpr std::uint32_t kMaxBytes = 256U << 20;

std::string Framed(const Json& message) {
  const std::string text = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto length = static_cast<std::uint32_t>(text.size());
  std::string framed(sizeof(length), '\0');
  std::memcpy(framed.data(), &length, sizeof(length));
  return framed + text;
}

bool SendAll(int fd, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool ReceiveAll(int fd, char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ssize_t received = ::recv(fd, data, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    data += received;
    bytes -= static_cast<std::size_t>(received);
  }
  return true;
}

}  // namespace

bool JsonStream::Send(const Json& message) {
  const std::string framed = Framed(message);
  const std::lock_guard lock(send_mutex_);
  return SendAll(socket_.get(), framed.data(), framed.size());
}

void JsonStream::SendIfFree(const Json& message) {
  const std::string framed = Framed(message);
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  const ssize_t sent = ::send(socket_.get(), framed.data(), framed.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A message that was sent in part must be completed, since the other end counts bytes.
  if (sent > 0) SendAll(socket_.get(), framed.data() + sent, framed.size() - static_cast<std::size_t>(sent));
}

std::optional<Json> JsonStream::Receive() {
  std::uint32_t length = 0;
  if (!ReceiveAll(socket_.get(), reinterpret_cast<char*>(&length), sizeof(length)) || length > kMaxBytes) {
    return std::nullopt;
  }
  std::string text(length, '\0');
  if (!ReceiveAll(socket_.get(), text.data(), text.size())) return std::nullopt;
  Json message = Json::parse(text, nullptr, false);
  if (!message.is_object()) return std::nullopt;
  return message;
}

void JsonStream::Shutdown() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace layercast
