// Decides when a silent publisher is asked whether it is alive, and when it is taken for lost. Part of each FetchingEnd
// that sends requests and pings. Value; one thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "layercast/error.h"
#include "src/base/deadline.h"

namespace layercast {

class Liveness {
 public:
  static constexpr std::chrono::milliseconds kAskAfter{1000};   // of silence
  static constexpr std::chrono::milliseconds kLostAfter{3000};  // after asking

  // To be called when something has come from the publisher.
  void Heard() {
    asked_ = false;
    heard_ = Deadline::Clock::now();
  }
  // To be called when nothing is there although something should come. True: the publisher is to be asked now. Throws
  // kUnavailable if it has been silent for kLostAfter since it was asked. Silence before that proves nothing, because
  // the caller may have been busy elsewhere for long.
  bool ShouldAsk(std::size_t under_way) {
    const auto now = Deadline::Clock::now();
    if (asked_ && now - asked_at_ >= kLostAfter) {
      throw Error(ErrorCode::kUnavailable, "silent for " + std::to_string((now - heard_) / std::chrono::seconds(1)) +
                                               " seconds, with " + std::to_string(under_way) + " requests under way");
    }
    if (asked_ || now - heard_ < kAskAfter) return false;
    asked_ = true;
    asked_at_ = now;
    return true;
  }

 private:
  bool asked_ = false;  // whether the publisher was asked since its last message
  Deadline::Clock::time_point heard_ = Deadline::Clock::now();
  Deadline::Clock::time_point asked_at_;
};

}  // namespace layercast
