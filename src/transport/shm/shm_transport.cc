#include "src/transport/shm/shm_transport.h"

#include "src/net/local_socket.h"
#include "src/transport/shm/shm_fetching_end.h"
#include "src/transport/shm/shm_offering_end.h"

namespace layercast {
namespace {

class ShmTransport final : public Transport {
 public:
  std::string_view name() const override { return "shm"; }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return WhyNotLocal(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& /*options*/) const override {
    return std::make_unique<shm_channel::ShmOfferingEnd>();
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<shm_channel::ShmFetchingEnd>(address, cache_, deadline);
  }

 private:
  // The other owners are this transport's connections, which may outlive it.
  const std::shared_ptr<shm_channel::SegmentCache> cache_ = std::make_shared<shm_channel::SegmentCache>();
};

}  // namespace

std::unique_ptr<Transport> MakeShmTransport() { return std::make_unique<ShmTransport>(); }

}  // namespace layercast
