// What a channel between GPUs works with, opened when it is first asked for: to look costs little where there is no
// GPU, and nothing where nobody asks.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/cuda/probe.h"

namespace layercast {

// Throws kUnsupported, with the reason.
inline void ExpectCudaDevice() {
  const CudaProbe probe = ProbeCuda();
  if (!probe) throw Error(ErrorCode::kUnsupported, "no CUDA device is here: " + probe.why_none);
}

// Thread-safe.
template <typename Parts>
class DeviceParts {
 public:
  explicit DeviceParts(std::function<Parts()> open) : open_(std::move(open)) {}

  // What `open` threw, each time.
  Parts Get() {
    const std::lock_guard lock(mutex_);
    Open();
    if (why_not_) throw Error(*why_not_);
    return *parts_;
  }
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
  std::optional<Parts> parts_;  // guarded by mutex_, as is
  std::optional<Error> why_not_;
};

}  // namespace layercast
