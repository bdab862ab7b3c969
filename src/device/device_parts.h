// What a channel between GPUs works with (libraries, a device), opened at its first use: so it costs nothing if nobody
// asks, and little if there is no GPU. Used by the transports nccl and cuda_ipc.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"

namespace layercast {

// Throws kUnsupported, with the reason, if there is no CUDA device.
inline void ExpectCudaDevice() {
  const CudaProbe probe = ProbeCuda();
  if (!probe) throw Error(ErrorCode::kUnsupported, "no CUDA device is here: " + probe.why_none);
}

// Thread-safe.
template <typename Parts>
class DeviceParts {
 public:
  explicit DeviceParts(std::function<Parts()> open) : open_(std::move(open)) {}

  // Opens the parts at the first call. If `open` has failed, every call throws its error.
  Parts Get() {
    const std::lock_guard lock(mutex_);
    Open();
    if (why_not_) throw Error(*why_not_);
    return *parts_;
  }
  // Why the parts cannot be opened; empty if they can.
  std::string WhyNot() {
    const std::lock_guard lock(mutex_);
    Open();
    return why_not_ ? why_not_->what() : std::string();
  }

 private:
  void Open() {
    if (parts_ || why_not_) return;
    try {
      parts_ = open_();
    } catch (const Error& error) {
      why_not_ = error;
    }
  }

  const std::function<Parts()> open_;
  std::mutex mutex_;
  std::optional<Parts> parts_;    // guarded by mutex_
  std::optional<Error> why_not_;  // guarded by mutex_
};

}  // namespace layercast
