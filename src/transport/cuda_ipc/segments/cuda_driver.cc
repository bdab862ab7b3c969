#include "src/transport/cuda_ipc/segments/cuda_driver.h"

#include <cuda_runtime_api.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/device/cuda/call.h"
#include "src/transport/cuda_ipc/segments/cuda_event.h"
#include "src/transport/cuda_ipc/segments/legacy_segments.h"
#include "src/transport/cuda_ipc/segments/vmm_segments.h"

namespace layercast::cuda_ipc_channel {
namespace {

class CudaDriver final : public IpcDriver {
 public:
  explicit CudaDriver(int device) : device_(device) {}

  bool opens_its_own() const override { return false; }

  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) override {
    if (const VmmSegments* const vmm = OpenVmm()) {
      try {
        const OnCudaDevice scope(device_);
        return vmm->MakeSegment(bytes);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        GiveUpVmm(error);
      }
    }
    auto segment = MakeLegacySegment(device_, bytes);
    try {
      static_cast<void>(segment->Export());
    } catch (const Error& error) {
      throw Error(ErrorCode::kUnsupported,
                  std::string("device memory cannot be shared here: ") + error.what() + "; nor by VMM: " + WhyNoVmm());
    }
    return segment;
  }

  std::unique_ptr<const MappedSegment> Map(SegmentKey key, std::size_t bytes) override {
    if (!key.descriptor) return MapLegacySegment(device_, key.handle, bytes);
    const VmmSegments* const vmm = OpenVmm();
    if (vmm == nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  "the publisher's memory is VMM's, which is not to be had here: " + WhyNoVmm());
    }
    const OnCudaDevice scope(device_);
    return vmm->Map(std::move(key.descriptor), bytes);
  }

  std::unique_ptr<IpcEvent> MakeEvent() override { return MakeCudaEvent(device_); }
  std::unique_ptr<IpcEvent> OpenEvent(const IpcHandle& handle) override { return OpenCudaEvent(device_, handle); }

 private:
  // Null if VMM cannot be used here (WhyNoVmm).
  const VmmSegments* OpenVmm() {
    const std::lock_guard lock(mutex_);
    if (!vmm_ && why_no_vmm_.empty()) {
      try {
        const OnCudaDevice scope(device_);  // makes the runtime initialize the driver
        vmm_.emplace(LoadVmm(), device_);
      } catch (const Error& error) {
        why_no_vmm_ = error.what();
      }
    }
    return why_no_vmm_.empty() ? &*vmm_ : nullptr;
  }
  void GiveUpVmm(const Error& error) {
    const std::lock_guard lock(mutex_);
    why_no_vmm_ = error.what();
    log::info("cuda_ipc: legacy IPC handles instead of VMM: {}", error.what());
  }
  std::string WhyNoVmm() const {
    const std::lock_guard lock(mutex_);
    return why_no_vmm_;
  }

  const int device_;
  mutable std::mutex mutex_;
  std::optional<VmmSegments> vmm_;  // guarded by mutex_; stays for good once it is made
  std::string why_no_vmm_;          // guarded by mutex_
};

}  // namespace

std::shared_ptr<IpcDriver> MakeCudaDriver(int device) { return std::make_shared<CudaDriver>(device); }

}  // namespace layercast::cuda_ipc_channel
