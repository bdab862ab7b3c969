#include "src/net/zmq/host_and_port.h"

#include <string_view>

#include "layercast/error.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {

std::string BindableHostAndPort(const std::string& what, const std::string& bind, bool may_leave_the_host,
                                const std::string& advice) {
  constexpr std::string_view kTcp = "tcp://";
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, what + " '" + bind + "': " + why);
  };
  const std::string endpoint = std::string(kTcp) + bind;
  const std::size_t colon = bind.rfind(':');
  if (colon == 0 || colon == std::string::npos || bind.find('/') != std::string::npos || bind.ends_with('*')) {
    refuse("expected HOST:PORT, e.g. 127.0.0.1:9400");
  }
  try {
    static_cast<void>(HostOf(endpoint));
  } catch (const Error&) {  // it tells of an endpoint of ours
    refuse("expected HOST:PORT, a port of at most 65535, e.g. 127.0.0.1:9400");
  }
  try {
    CheckBindable(endpoint, may_leave_the_host);
  } catch (const Error&) {
    refuse("it can be reached from other hosts, " + advice);
  }
  return AsBindable(endpoint).substr(kTcp.size());
}

}  // namespace layercast
