#include "src/transport/nccl/nccl_transport.h"

#include <chrono>
#include <string>
#include <utility>

#include "src/device/cuda_channel_device.h"
#include "src/device/device_parts.h"
#include "src/transport/nccl/nccl_fetching_end.h"
#include "src/transport/nccl/nccl_offering_end.h"
#include "src/transport/nccl/wire/dynamic_nccl.h"

namespace layercast {
namespace {

using nccl_channel::NcclParts;

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::function<NcclParts()> open) : parts_(std::move(open)) {}

  std::string_view name() const override { return "nccl"; }
  std::string WhyNotHere() const override { return parts_.WhyNot(); }
  // Not by default: a communicator costs seconds, memory of both GPUs, and some of their processors while bytes move.
  bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const override { return false; }
  // Long, because NCCL looks at the whole machine first. Twice this time, for the probe and for the session, is still
  // within a lease.
  std::chrono::milliseconds connect_time() const override { return std::chrono::seconds(12); }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<nccl_channel::NcclOfferingEnd>(parts_.Get(), options);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<nccl_channel::NcclFetchingEnd>(parts_.Get(), address, deadline);
  }

 private:
  mutable DeviceParts<NcclParts> parts_;
};

}  // namespace

namespace nccl_channel {

NcclParts OpenNcclParts(int device) {
  ExpectCudaDevice();
  return {LoadNccl(NcclPath()), MakeCudaChannelDevice(device)};
}

}  // namespace nccl_channel

std::unique_ptr<Transport> MakeNcclTransport(std::optional<int> device) {
  return MakeNcclTransport([device] {
    ExpectCudaDevice();
    return nccl_channel::OpenNcclParts(device ? *device : CurrentCudaDevice());
  });
}

std::unique_ptr<Transport> MakeNcclTransport(std::function<nccl_channel::NcclParts()> open) {
  return std::make_unique<NcclTransport>(std::move(open));
}

}  // namespace layercast
