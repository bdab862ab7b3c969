// Wakes a thread that polls file descriptors. Resource; thread-safe.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/unique_fd.h"

namespace layercast {

class WakeUp {
 public:
  // Throws kResourceExhausted.
  WakeUp() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw SystemError(errno, ErrorCode::kResourceExhausted, "an eventfd");
  }

  void Ring() const {
    const std::uint64_t one = 1;
    // The write fails only if the counter is full, and then the descriptor is readable already.
    [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof(one));
  }
  void Clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto read = ::read(fd_.get(), &count, sizeof(count));
  }
  // Rings when a scope is left, also by an exception.
  class RingAtExit {
   public:
    explicit RingAtExit(const WakeUp& wake_up) : wake_up_(wake_up) {}
    ~RingAtExit() { wake_up_.Ring(); }
    RingAtExit(const RingAtExit&) = delete;
    RingAtExit& operator=(const RingAtExit&) = delete;

   private:
    const WakeUp& wake_up_;
  };
  // The descriptor to poll: it is readable between Ring and Clear.
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace layercast
