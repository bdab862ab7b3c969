// Where a process has no descriptor left for whoever connects, its listener stays readable: whoever serves others
// beside it leaves it alone for a while then, instead of looking at nothing else.
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

  // What a poll asks of the listener; nothing during the pause.
  short events() const { return end_.Passed() ? POLLIN : 0; }
  // How long that poll may take.
  std::chrono::microseconds AtMost(std::chrono::microseconds timeout) const {
    return end_.Passed() ? timeout : std::min(timeout, std::chrono::microseconds(length_));
  }
  // accept has failed: a pause begins, unless it was for another reason.
  void Failed(int error) {
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) end_ = Deadline::After(length_);
  }

 private:
  std::chrono::milliseconds length_;
  Deadline end_ = Deadline::After(std::chrono::milliseconds(0));
};

}  // namespace layercast
