// Says to a publisher, twice a second, how far this receiver has come with its part of a version. Used by the parts of
// snapshots and of streams. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstdint>

#include "src/base/deadline.h"
#include "src/session/fetch/chunk_receiver.h"
#include "src/session/relays/pace.h"

namespace layercast {

class ProgressNote {
 public:
  explicit ProgressNote(ChunkReceiver& receiver) : receiver_(receiver) {}

  // Chunks were waited for since then.
  void WaitedSince(Deadline::Clock::time_point begin) { waited_ += Deadline::Clock::now() - begin; }
  // Chunks of so many bytes in all are used up. Says so if it is time.
  void Tell(std::uint64_t bytes) {
    const auto now = Deadline::Clock::now();
    if (now - told_ < Pace::kPeriod) return;
    told_ = now;
    const double probed = receiver_.parts().publisher.channel_use().probed_gb_per_s;
    receiver_.Send(wire::Progress{.bytes = bytes,
                                  .elapsed_us = Microseconds(now - begin_),
                                  .waited_us = Microseconds(waited_),
                                  .bytes_per_second = static_cast<std::uint64_t>(probed * 1e9)});
  }

 private:
  static std::uint64_t Microseconds(Deadline::Clock::duration duration) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
  }

  ChunkReceiver& receiver_;
  const Deadline::Clock::time_point begin_ = Deadline::Clock::now();
  Deadline::Clock::time_point told_ = begin_;
  Deadline::Clock::duration waited_{0};
};

}  // namespace layercast
