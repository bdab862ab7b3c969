// Who does something for a caller gives up before the caller does, so that its answer, which says whom it waited for,
// still comes in time. Used by controllers for engines, and by engines for their ranks.
#pragma once

#include <algorithm>
#include <chrono>

namespace layercast {

// The most that it gives up earlier.
inline constexpr std::chrono::milliseconds kAnswerTime{2'000};

// How long it may take if its caller waits for `patience`.
constexpr std::chrono::milliseconds TimeWithin(std::chrono::milliseconds patience) {
  return patience - std::min(patience / 4, kAnswerTime);
}

}  // namespace layercast
