// Says to a publisher, twice a second, how far this receiver has come with its part of a version. Used by the parts of
// snapshots and of streams. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/base/deadline.h"
#include "src/session/fetch/publisher_session.h"
#include "src/session/relay_tree/pace.h"

namespace layercast {

class ProgressNote {
 public:
  explicit ProgressNote(PublisherSession& publisher) : publisher_(publisher) {}

  // Chunks were waited for since then.
  void WaitedSince(Deadline::Clock::time_point begin) { waited_ += Deadline::Clock::now() - begin; }
  // A chunk of so many bytes is used up.
  void Used(std::uint64_t bytes) { bytes_ += bytes; }
  std::uint64_t bytes() const { return bytes_; }
  // Says how far it is, if it is time.
  void Tell() {
    const auto now = Deadline::Clock::now();
    if (now - told_ >= Pace::kPeriod) TellNow();
  }
  // Likewise, whether or not it is time: once all has come.
  void TellNow() {
    const auto now = Deadline::Clock::now();
    told_ = now;
    const double probed = publisher_.channel_use().probed_gb_per_s;
    publisher_.link().Send(wire::Progress{.bytes = bytes_,
                                          .elapsed_us = Microseconds(now - begin_),
                                          .waited_us = Microseconds(waited_),
                                          .bytes_per_second = static_cast<std::uint64_t>(probed * 1e9)});
  }

 private:
  static std::uint64_t Microseconds(Deadline::Clock::duration duration) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
  }

  PublisherSession& publisher_;
  const Deadline::Clock::time_point begin_ = Deadline::Clock::now();
  Deadline::Clock::time_point told_ = begin_;
  Deadline::Clock::duration waited_{0};
  std::uint64_t bytes_ = 0;
};

}  // namespace layercast
