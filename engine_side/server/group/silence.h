// For how long a peer has been silent, as far as whoever watches it could hear. Used by RankHandle.
#pragma once

#include <algorithm>

#include "src/base/deadline.h"

namespace layercast {

// Value. A watcher looks every `interval`. Where much more time lies between two looks, the watcher itself was stopped,
// or its machine was: what the peer has sent meanwhile was not read yet, so that time does not count as silence.
class Silence {
 public:
  using Clock = Deadline::Clock;

  Silence(Clock::time_point now, Clock::duration interval) : last_(now), interval_(interval) {}

  void Heard(Clock::time_point now) {
    silent_ = {};
    last_ = now;
  }
  // Returns for how long the peer has been silent by now.
  Clock::duration Look(Clock::time_point now) {
    silent_ += std::min(now - last_, 2 * interval_);  // a look may be somewhat late
    last_ = now;
    return silent_;
  }

 private:
  Clock::time_point last_;
  Clock::duration interval_;
  Clock::duration silent_{};
};

}  // namespace layercast
