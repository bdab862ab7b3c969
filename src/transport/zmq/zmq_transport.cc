#include "src/transport/zmq/zmq_transport.h"

#include <utility>

#include "src/transport/zmq/zmq_fetching_end.h"
#include "src/transport/zmq/zmq_offering_end.h"

namespace layercast {
namespace {

class ZmqTransport final : public Transport {
 public:
  explicit ZmqTransport(Keys keys) : keys_(std::move(keys)) {}
  std::string_view name() const override { return "zmq"; }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<zmq_channel::ZmqOfferingEnd>(options.bind_host, keys_);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<zmq_channel::ZmqFetchingEnd>(address, keys_, deadline);
  }

 private:
  const Keys keys_;
};

}  // namespace

std::unique_ptr<Transport> MakeZmqTransport(const Keys& keys) { return std::make_unique<ZmqTransport>(keys); }

}  // namespace layercast
