#include "src/transport/cuda_ipc/cuda_ipc_transport.h"

#include <string>
#include <utility>

#include "src/device/cuda_channel_device.h"
#include "src/device/device_parts.h"
#include "src/net/local_socket.h"
#include "src/transport/cuda_ipc/cuda_ipc_fetching_end.h"
#include "src/transport/cuda_ipc/cuda_ipc_offering_end.h"
#include "src/transport/cuda_ipc/segments/cuda_driver.h"

namespace layercast {
namespace {

using cuda_ipc_channel::CudaIpcParts;

class CudaIpcTransport final : public Transport {
 public:
  explicit CudaIpcTransport(std::function<CudaIpcParts()> open) : parts_(std::move(open)) {}

  std::string_view name() const override { return "cuda_ipc"; }
  std::string WhyNotHere() const override { return parts_.WhyNot(); }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    const std::string why_not = WhyNotHere();
    return why_not.empty() ? WhyNotLocal(mine, theirs) : why_not;
  }
  // Not by default, because it has run on no GPU yet.
  bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const override { return false; }
  // Not unasked, because every version would then lie in the publisher's GPU a second time, even if nobody asks for it.
  bool OfferedUnasked() const override { return false; }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& /*options*/) const override {
    return std::make_unique<cuda_ipc_channel::CudaIpcOfferingEnd>(parts_.Get());
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<cuda_ipc_channel::CudaIpcFetchingEnd>(parts_.Get(), mappings_, address, deadline);
  }

 private:
  mutable DeviceParts<CudaIpcParts> parts_;
  // The other owners are this transport's connections, which may outlive it.
  const std::shared_ptr<cuda_ipc_channel::Mappings> mappings_ = std::make_shared<cuda_ipc_channel::Mappings>();
};

}  // namespace

namespace cuda_ipc_channel {

CudaIpcParts OpenCudaIpcParts(int device) {
  ExpectCudaDevice();
  return {MakeCudaDriver(device), MakeCudaChannelDevice(device)};
}

}  // namespace cuda_ipc_channel

std::unique_ptr<Transport> MakeCudaIpcTransport(std::optional<int> device) {
  return MakeCudaIpcTransport([device] {
    ExpectCudaDevice();
    return cuda_ipc_channel::OpenCudaIpcParts(device ? *device : CurrentCudaDevice());
  });
}

std::unique_ptr<Transport> MakeCudaIpcTransport(std::function<cuda_ipc_channel::CudaIpcParts()> open) {
  return std::make_unique<CudaIpcTransport>(std::move(open));
}

}  // namespace layercast
