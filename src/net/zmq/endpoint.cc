#include "src/net/zmq/endpoint.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>

#include "layercast/error.h"
#include "src/base/bytes/comma_list.h"
#include "src/net/host_lookup.h"

namespace layercast {
namespace {

// Checked here because ZeroMQ would silently truncate 99999 to 34463. "*" stands for any free port.
bool IsPort(std::string_view text) {
  std::uint16_t port = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return text == "*" || (error == std::errc() && stop == text.data() + text.size());
}

// How long binding waits for the system's resolver, which has no limit of its own.
constexpr std::chrono::seconds kToBind{10};

std::optional<HostLookup> LookUp(const std::string& host, Deadline deadline) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  return LookUpHost(host, "0", hints, deadline);
}

std::string AddressText(const addrinfo& address) {
  char text[NI_MAXHOST] = {};
  if (::getnameinfo(address.ai_addr, address.ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return address.ai_family == AF_INET6 ? "[" + std::string(text) + "]" : text;
}

}  // namespace

std::string HostOf(const std::string& endpoint) {
  if (endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")) return "";
  constexpr std::string_view kTcp = "tcp://";
  const std::size_t colon = endpoint.rfind(':');
  const bool is_one = endpoint.find(',') == std::string::npos;
  if (!is_one || !endpoint.starts_with(kTcp) || colon < kTcp.size() ||
      !IsPort(std::string_view(endpoint).substr(colon + 1))) {
    throw Error(ErrorCode::kInvalidArgument,
                "endpoint '" + endpoint +
                    "': expected tcp://HOST:PORT (a port of at most 65535) or ipc://PATH, e.g. tcp://127.0.0.1:7700");
  }
  return endpoint.substr(kTcp.size(), colon - kTcp.size());
}

const addrinfo* PreferredAddress(const addrinfo* addresses) {
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) return at;
  }
  return addresses;
}

bool ReachedByIpv6(const std::string& endpoint, Deadline deadline) {
  const std::string host = HostOf(endpoint);
  if (host.empty() || IsIpv6(endpoint)) return !host.empty();
  const std::optional<HostLookup> lookup = LookUp(host, deadline);
  if (lookup && lookup->addresses != nullptr) {
    return PreferredAddress(lookup->addresses.get())->ai_family == AF_INET6;
  }
  const std::string why = lookup ? ::gai_strerror(lookup->status) : "the system's resolver does not answer";
  throw Error(ErrorCode::kUnavailable,
              "endpoint '" + endpoint + "': no address is known of the host '" + host + "': " + why);
}

std::string ByAddress(const std::string& endpoint, Deadline deadline) {
  const std::string host = HostOf(endpoint);
  if (host.empty() || host == "*" || IsIpv6(endpoint)) return endpoint;
  const std::optional<HostLookup> lookup = LookUp(host, deadline);
  if (!lookup || lookup->addresses == nullptr) return endpoint;
  const std::string address = AddressText(*PreferredAddress(lookup->addresses.get()));
  return address.empty() ? endpoint : "tcp://" + address + endpoint.substr(endpoint.rfind(':'));
}

std::string AsBindable(const std::string& endpoint) { return ByAddress(endpoint, Deadline::After(kToBind)); }

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
  std::vector<std::string> split = AtCommas(endpoints);
  if (std::ranges::find(split, "") != split.end()) {
    throw Error(ErrorCode::kInvalidArgument, "endpoints '" + endpoints + "': expected some with commas between");
  }
  return split;
}

void CheckBindable(const std::string& endpoint, bool may_leave_the_host) {
  const std::string host = HostOf(endpoint);
  const bool loopback = host.empty() || host == "localhost" || host == "[::1]" || host.starts_with("127.");
  if (loopback || may_leave_the_host) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "endpoint '" + endpoint +
          "' can be reached from other hosts, and there are no keys by which peers are authenticated: give some "
          "(--keys or --secret), bind a loopback address, or say that anybody may do anything (--insecure)");
}

}  // namespace layercast
