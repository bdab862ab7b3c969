#include "src/transport/cuda_ipc/cuda_ipc_transport.h"

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/cuda/probe.h"
#include "src/transport/cuda_ipc/cuda_driver.h"
#include "src/transport/cuda_ipc/cuda_ipc_fetching_end.h"
#include "src/transport/cuda_ipc/cuda_ipc_offering_end.h"
#include "src/transport/device/cuda_staging.h"

namespace layercast {
namespace {

using cuda_ipc_channel::CudaIpcParts;

void ExpectCudaDevice() {
  const CudaProbe probe = ProbeCuda();
  if (!probe) throw Error(ErrorCode::kUnsupported, "no CUDA device is here: " + probe.why_none);
}

class CudaIpcTransport final : public Transport {
 public:
  explicit CudaIpcTransport(std::function<CudaIpcParts()> open) : open_(std::move(open)) {}

  std::string_view name() const override { return "cuda_ipc"; }
  std::string WhyNotHere() const override {
    const std::lock_guard lock(mutex_);
    Open();
    return why_not_ ? why_not_->what() : std::string();
  }
  bool Viable(const HostIdentity& mine, const HostIdentity& theirs, std::string& reason) const override {
    reason = WhyNotHere();
    if (!reason.empty()) return false;
    if (mine.boot_id.empty() || mine.boot_id != theirs.boot_id)
      reason = "not on the same host";
    else if (mine.network.empty() || mine.network != theirs.network)
      reason = "in another network namespace";
    else if (mine.user != theirs.user)
      reason = "run by another user";
    return reason.empty();
  }
  // It has run on no GPU yet.
  bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const override { return false; }
  // Every version would lie in the publisher's GPU a second time, asked for or not.
  bool OfferedUnasked() const override { return false; }
  std::unique_ptr<OfferingEnd> Offering(const std::string& /*bind_host*/) const override {
    return std::make_unique<cuda_ipc_channel::CudaIpcOfferingEnd>(Parts());
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<cuda_ipc_channel::CudaIpcFetchingEnd>(Parts(), mappings_, address, deadline);
  }

 private:
  CudaIpcParts Parts() const {
    const std::lock_guard lock(mutex_);
    Open();
    if (why_not_) throw Error(*why_not_);
    return *parts_;
  }
  void Open() const {
    if (parts_ || why_not_) return;
    try {
      parts_ = open_();
    } catch (const Error& error) {
      why_not_ = error;
    }
  }

  const std::function<CudaIpcParts()> open_;
  mutable std::mutex mutex_;
  mutable std::optional<CudaIpcParts> parts_;  // guarded by mutex_, as is
  mutable std::optional<Error> why_not_;
  // The second owners are this transport's connections, which may outlive it.
  const std::shared_ptr<cuda_ipc_channel::Mappings> mappings_ = std::make_shared<cuda_ipc_channel::Mappings>();
};

}  // namespace

namespace cuda_ipc_channel {

CudaIpcParts OpenCudaIpcParts(int device) {
  ExpectCudaDevice();
  return {MakeCudaDriver(device), MakeCudaStaging(device)};
}

}  // namespace cuda_ipc_channel

std::unique_ptr<Transport> MakeCudaIpcTransport() {
  return MakeCudaIpcTransport([] {
    ExpectCudaDevice();
    return cuda_ipc_channel::OpenCudaIpcParts(CurrentCudaDevice());
  });
}

std::unique_ptr<Transport> MakeCudaIpcTransport(std::function<cuda_ipc_channel::CudaIpcParts()> open) {
  return std::make_unique<CudaIpcTransport>(std::move(open));
}

}  // namespace layercast
