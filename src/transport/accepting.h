// When a listener is to be polled. Where the process has no descriptor left for whoever connects, it stays readable: it
// is left alone for a while then, and whoever serves others goes on.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "src/base/deadline.h"

namespace layercast {

// Value; one thread only.
class Accepting {
 public:
  // Of a pollfd.
  short events() const { return again_.Passed() ? POLLIN : 0; }
  // How long a poll may take, so that it is asked again.
  std::chrono::microseconds AtMost(std::chrono::microseconds timeout) const {
    return again_.Passed() ? timeout : std::min(timeout, std::chrono::microseconds(kPause));
  }
  // What accept failed with.
  void Failed(int error) {
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) again_ = Deadline::After(kPause);
  }

 private:
  static constexpr std::chrono::milliseconds kPause{100};

  Deadline again_ = Deadline::After(std::chrono::milliseconds(0));
};

}  // namespace layercast
