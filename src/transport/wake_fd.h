// Wakes a thread that polls descriptors. Thread-safe.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "layercast/error.h"
#include "src/base/unique_fd.h"

namespace layercast {

class WakeFd {
 public:
  WakeFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_) throw Error(ErrorCode::kResourceExhausted, "cannot make an eventfd");
  }
  int get() const { return fd_.get(); }
  void Wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof(one));  // full means: awake already
  }
  void Clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto taken = ::read(fd_.get(), &count, sizeof(count));  // empty: nothing to clear
  }

 private:
  UniqueFd fd_;
};

}  // namespace layercast
