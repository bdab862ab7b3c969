// The line that a progress bar shows: a function of what there is to say and of the terminal's width. Used by
// ProgressBar.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace layercast::cli {

// Value.
struct BarState {
  std::string what;     // whose progress: "loading", "3 engines"
  std::string stage{};  // "receive"; empty: there is but one
  std::uint64_t bytes = 0;
  std::uint64_t bytes_total = 0;  // 0: not known
  std::string slowest{};          // of several: "rank 3 at 38 %"; empty: there is but one
};

// What the bar itself measures. Value.
struct BarTimes {
  double bytes_per_second = 0;  // 0: not known
  std::chrono::seconds elapsed{0};
};

// One line of less than `width` columns, so that no terminal wraps it. Where there is no room for everything, the bar
// goes first, then what is said least; at 40 columns there are stage, share, bytes, rate and remaining time.
std::string BarLine(const BarState& state, const BarTimes& times, std::size_t width);

}  // namespace layercast::cli
