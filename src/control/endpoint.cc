#include "src/control/endpoint.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include "layercast/error.h"

namespace layercast {
namespace {

// ZeroMQ would cut 99999 down to 34463 without a word.
bool IsPort(std::string_view text) {
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return text == "*" || (error == std::errc() && stop == text.data() + text.size());
}

// Of a name, or as it is; nothing where nobody knows it, and `status` says why (gai_strerror).
std::optional<std::string> AddressOf(const std::string& host, int& status) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;  // what ZeroMQ asks for
  addrinfo* found = nullptr;
  status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0) return std::nullopt;
  char text[NI_MAXHOST] = {};
  status = ::getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  ::freeaddrinfo(found);
  return status == 0 ? std::optional<std::string>(text) : std::nullopt;
}

}  // namespace

std::string HostOf(const std::string& endpoint) {
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) return "";
  constexpr std::string_view kTcp = "tcp://";
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with(kTcp) || colon < kTcp.size() || !IsPort(std::string_view(endpoint).substr(colon + 1))) {
    throw Error(ErrorCode::kInvalidArgument,
                "endpoint '" + endpoint +
                    "': expected tcp://HOST:PORT (a port of at most 65535) or ipc://PATH, e.g. tcp://127.0.0.1:7700");
  }
  return endpoint.substr(kTcp.size(), colon - kTcp.size());
}

void CheckResolves(const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  if (host.empty() || IsIpv6(endpoint)) return;  // no name: a path, or a literal address
  int status = 0;
  if (AddressOf(host, status)) return;
  throw Error(ErrorCode::kUnavailable,
              "endpoint '" + endpoint + "': no address is known of the host '" + host + "': " + ::gai_strerror(status));
}

std::string AsBindable(const std::string& endpoint) {
  const std::string host = HostOf(endpoint);
  if (host.empty() || host == "*" || IsIpv6(endpoint)) return endpoint;
  int status = 0;
  const std::optional<std::string> address = AddressOf(host, status);
  return address ? "tcp://" + *address + endpoint.substr(endpoint.rfind(':')) : endpoint;
}

bool IsIpv6(const std::string& endpoint) { return endpoint.starts_with("tcp://["); }

const char* DoubtOfEndpoint(bool heard) {
  return heard ? "" : ": it has never answered; does it run, and is this its endpoint?";
}

std::string AsReached(const std::string& endpoint, const std::string& reached) {
  const std::string host = HostOf(endpoint);
  const std::string of_peer = HostOf(reached);
  const bool is_any = host == "0.0.0.0" || host == "[::]" || host == "*";
  if (!is_any || of_peer.empty()) return endpoint;
  return "tcp://" + of_peer + endpoint.substr(endpoint.rfind(':'));
}

std::vector<std::string> SplitEndpoints(const std::string& endpoints) {
  std::vector<std::string> split;
  for (std::size_t begin = 0; begin <= endpoints.size();) {
    const std::size_t end = std::min(endpoints.find(',', begin), endpoints.size());
    split.push_back(endpoints.substr(begin, end - begin));
    if (split.back().empty()) {
      throw Error(ErrorCode::kInvalidArgument, "endpoints '" + endpoints + "': expected some with commas between");
    }
    begin = end + 1;
  }
  return split;
}

std::string NamingEngine(const std::string& endpoint, const std::string& fault) {
  return fault.find(endpoint) != std::string::npos ? fault : "engine " + endpoint + ": " + fault;
}

void CheckBindable(const std::string& endpoint, bool allow_remote) {
  const std::string host = HostOf(endpoint);
  const bool loopback = host.empty() || host == "localhost" || host == "[::1]" || host.starts_with("127.");
  if (loopback || allow_remote) return;
  throw Error(ErrorCode::kInvalidArgument,
              "endpoint '" + endpoint +
                  "' can be reached from other hosts, and peers are not authenticated: bind a "
                  "loopback address, or allow remote peers explicitly");
}

}  // namespace layercast
