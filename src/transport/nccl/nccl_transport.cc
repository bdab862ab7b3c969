#include "src/transport/nccl/nccl_transport.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/cuda/probe.h"
#include "src/transport/device/cuda_staging.h"
#include "src/transport/nccl/dynamic_nccl.h"
#include "src/transport/nccl/nccl_fetching_end.h"
#include "src/transport/nccl/nccl_offering_end.h"

namespace layercast {
namespace {

using nccl_channel::NcclParts;

void ExpectDevice() {
  const CudaProbe probe = ProbeCuda();
  if (!probe) throw Error(ErrorCode::kUnsupported, "no CUDA device is here: " + probe.why_none);
}

class NcclTransport final : public Transport {
 public:
  explicit NcclTransport(std::function<NcclParts()> open) : open_(std::move(open)) {}

  std::string_view name() const override { return "nccl"; }
  std::string WhyNotHere() const override {
    const std::lock_guard lock(mutex_);
    Open();
    return why_not_ ? why_not_->what() : std::string();
  }
  // What the other end has, only the greeting tells: version and device.
  bool Viable(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/, std::string& reason) const override {
    reason = WhyNotHere();
    return reason.empty();
  }
  // A communicator costs seconds, memory of both GPUs, and some of their processors while bytes move.
  bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const override { return false; }
  // NCCL looks at the whole machine first. Twice that, for the probe and for the session, is still within a lease.
  std::chrono::milliseconds connect_time() const override { return std::chrono::seconds(12); }
  std::unique_ptr<OfferingEnd> Offering(const std::string& bind_host) const override {
    return std::make_unique<nccl_channel::NcclOfferingEnd>(Parts(), bind_host);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<nccl_channel::NcclFetchingEnd>(Parts(), address, deadline);
  }

 private:
  NcclParts Parts() const {
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

  const std::function<NcclParts()> open_;
  mutable std::mutex mutex_;
  mutable std::optional<NcclParts> parts_;  // guarded by mutex_, as is
  mutable std::optional<Error> why_not_;
};

}  // namespace

namespace nccl_channel {

NcclParts OpenNcclParts(int device) {
  ExpectDevice();
  return {LoadNccl(NcclPath()), MakeCudaStaging(device)};
}

}  // namespace nccl_channel

std::unique_ptr<Transport> MakeNcclTransport() {
  return MakeNcclTransport([] {
    ExpectDevice();
    return nccl_channel::OpenNcclParts(CurrentCudaDevice());
  });
}

std::unique_ptr<Transport> MakeNcclTransport(std::function<nccl_channel::NcclParts()> open) {
  return std::make_unique<NcclTransport>(std::move(open));
}

}  // namespace layercast
