#include "src/transport/zmq/zmq_transport.h"

#include "src/transport/zmq/zmq_fetching_end.h"
#include "src/transport/zmq/zmq_offering_end.h"

namespace layercast {
namespace {

class ZmqTransport final : public Transport {
 public:
  std::string_view name() const override { return "zmq"; }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<zmq_channel::ZmqOfferingEnd>(options.bind_host);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<zmq_channel::ZmqFetchingEnd>(address, deadline);
  }
};

}  // namespace

std::unique_ptr<Transport> MakeZmqTransport() { return std::make_unique<ZmqTransport>(); }

}  // namespace layercast
