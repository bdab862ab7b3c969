#include "src/net/zmq/listening.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

// The file that an endpoint stands for; empty for TCP, for a name without a file ("ipc://@name") and for one that
// ZeroMQ makes up ("ipc://*").
std::string FileOf(const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (!endpoint.starts_with(kIpc)) return {};
  const std::string path = endpoint.substr(kIpc.size());
  return path.starts_with('@') || path == "*" ? std::string() : path;
}

std::optional<struct stat> FileAt(const std::string& path) {
  struct stat found = {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  return found;
}

bool SomebodyListensAt(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;  // too long for anybody to listen there
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN;
}

// Throws if there is anything at `path` but the socket of a process that is gone: only that may be replaced.
void CheckReplaceable(const std::string& path, const std::string& whose) {
  const std::optional<struct stat> found = FileAt(path);
  if (!found) return;
  if (!S_ISSOCK(found->st_mode)) {
    throw Error(ErrorCode::kInvalidArgument, whose + ": '" + path + "' is there already, and it is no socket");
  }
  if (SomebodyListensAt(path)) throw Error(ErrorCode::kUnavailable, whose + ": another process listens there");
}

}  // namespace

Listening::Listening(zmq::socket_t& socket, const std::string& owner, const std::string& endpoint,
                     bool may_leave_the_host) {
  const std::string bindable = AsBindable(endpoint);
  CheckBindable(bindable, may_leave_the_host);
  const std::string whose = owner + " endpoint '" + endpoint + "'";
  file_ = FileOf(bindable);
  if (!file_.empty()) CheckReplaceable(file_, whose);
  socket.set(zmq::sockopt::ipv6, IsIpv6(bindable));
  try {
    socket.bind(bindable);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kUnavailable, whose + ": " + error.what());
  }
  endpoint_ = socket.get(zmq::sockopt::last_endpoint);
  if (const std::optional<struct stat> made = FileAt(file_)) file_number_ = made->st_ino;
}

Listening::~Listening() {
  const std::optional<struct stat> now = FileAt(file_);
  if (now && now->st_ino == file_number_) ::unlink(file_.c_str());
}

}  // namespace layercast
