#include "src/metrics/metrics_address.h"

#include <string_view>

#include "layercast/error.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {

std::string BindableMetricsAddress(const std::string& bind, bool open) {
  constexpr std::string_view kTcp = "tcp://";
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidArgument, "metrics address '" + bind + "': " + why);
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
    CheckBindable(endpoint, open);
  } catch (const Error&) {
    refuse(
        "it can be reached from other hosts, and whoever reaches it reads the metrics without any key: bind a loopback "
        "address, or say that anybody may (--metrics-open, metrics_open)");
  }
  return AsBindable(endpoint).substr(kTcp.size());
}

}  // namespace layercast
