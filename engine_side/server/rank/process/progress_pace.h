// Which of a rank's words about its progress go to the parent, which keeps none but the last one: of a small version
// each chunk is a hundredth, and to tell of each takes longer than to take it. Used by the rank's process.
#pragma once

#include <chrono>

#include "layercast/progress.h"

namespace layercast {

// Resource; one thread at a time.
class ProgressPace {
 public:
  // Whether that is to be told: another stage, the first bytes, the last ones, or some time after what was told last.
  bool IsDue(const ReloadProgress& made) {
    const auto now = Clock::now();
    const bool news = made.stage != told_.stage || made.version != told_.version || made.layers == made.layers_total ||
                      (made.bytes == 0) != (told_.bytes == 0);
    if (!news && now - told_at_ < kPace) return false;
    told_ = made;
    told_at_ = now;
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPace{5};

  ReloadProgress told_;
  Clock::time_point told_at_{};
};

}  // namespace layercast
