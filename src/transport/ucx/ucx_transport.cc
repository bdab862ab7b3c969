#include "src/transport/ucx/ucx_transport.h"

#include <utility>

#include "src/transport/connection_guard.h"
#include "src/transport/ucx/greeting.h"
#include "src/transport/ucx/settings.h"
#include "src/transport/ucx/ucx_fetching_end.h"
#include "src/transport/ucx/ucx_offering_end.h"

namespace layercast {
namespace {

class UcxTransport final : public Transport {
 public:
  std::string_view name() const override { return "ucx"; }
  bool Viable(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/, std::string& /*reason*/) const override {
    return true;
  }
  // Over TCP, whoever reaches UCX's port can write to any memory of the process: nothing to open unasked.
  bool ByDefault(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return ucx_channel::ShareMemory(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<ucx_channel::UcxOfferingEnd>(options.bind_host);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    ucx_channel::Greeted greeted = ConnectionGuard(ucx_channel::PeerAt(address)).Run([&] {
      return ucx_channel::Greet(ControlAddress::Parse("ucx", address), deadline);
    });
    return std::make_unique<ucx_channel::UcxFetchingEnd>(address, std::move(greeted), deadline);
  }
};

}  // namespace

std::unique_ptr<Transport> MakeUcxTransport() { return std::make_unique<UcxTransport>(); }

}  // namespace layercast
