// Stands in for the endpoint in a build without prometheus-cpp.
#include "layercast/error.h"
#include "src/metrics/metrics_endpoint.h"

namespace layercast {

class MetricsEndpoint::Impl {};

MetricsEndpoint::MetricsEndpoint(const std::string& bind, bool /*open*/, Collect /*collect*/) {
  throw Error(ErrorCode::kUnsupported,
              "metrics address '" + bind +
                  "': this build has no metrics: prometheus-cpp (prometheus-cpp-dev) was not found, or switched off, "
                  "when it was configured");
}
MetricsEndpoint::~MetricsEndpoint() = default;
std::string MetricsEndpoint::address() const { return {}; }

}  // namespace layercast
