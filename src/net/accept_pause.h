// When a process has no file descriptor left, accept fails and the listener stays readable, so that a thread which
// polls it would do nothing else. AcceptPause makes such a thread leave its listener alone for a while. Used by the
// service threads of channels.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "src/base/deadline.h"

namespace layercast {

// Value; one thread only.
class AcceptPause {
 public:
  explicit AcceptPause(std::chrono::milliseconds length = std::chrono::milliseconds(100)) : length_(length) {}

  // The events for which to poll the listener; none during a pause.
  short events() const { return end_.Passed() ? POLLIN : 0; }
  // How long that poll may take: `timeout`, but during a pause no longer than the pause.
  std::chrono::microseconds AtMost(std::chrono::microseconds timeout) const {
    return end_.Passed() ? timeout : std::min(timeout, std::chrono::microseconds(length_));
  }
  // To be called when accept has failed, with errno. Begins a pause if the reason was a lack of descriptors or memory.
  void Failed(int error) {
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) end_ = Deadline::After(length_);
  }

 private:
  std::chrono::milliseconds length_;
  Deadline end_ = Deadline::After(std::chrono::milliseconds(0));
};

}  // namespace layercast
