// When a publisher that says nothing is asked, and when it is taken for lost. Part of each FetchingEnd that has
// requests and pings of its own. Value; one thread only.
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

  // Something came from the publisher.
  void Heard() {
    asked_ = false;
    heard_ = Deadline::Clock::now();
  }
  // Nothing is there, while something should come: true when the publisher is to be asked now. What counts is silence
  // after that: the caller may have been busy elsewhere for long. Throws kUnavailable.
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
  bool asked_ = false;  // since the last message
  Deadline::Clock::time_point heard_ = Deadline::Clock::now();
  Deadline::Clock::time_point asked_at_;
};

}  // namespace layercast
