// How fast bytes come, over the last few seconds. Used by ProgressBar. Value; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace layercast::cli {

class RateMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kWindow{3};

  // So many bytes had come by then. Fewer than before: something else began.
  void Note(Clock::time_point now, std::uint64_t bytes) {
    if (!seen_.empty() && bytes < seen_.back().bytes) seen_.clear();
    seen_.push_back({now, bytes});
    while (seen_.size() > 2 && now - seen_[1].at >= kWindow) seen_.pop_front();
  }
  // 0: not known.
  double bytes_per_second() const {
    if (seen_.size() < 2) return 0;
    const std::chrono::duration<double> time = seen_.back().at - seen_.front().at;
    return time.count() > 0 ? static_cast<double>(seen_.back().bytes - seen_.front().bytes) / time.count() : 0;
  }

 private:
  struct Seen {
    Clock::time_point at;
    std::uint64_t bytes;
  };
  std::deque<Seen> seen_;
};

}  // namespace layercast::cli
