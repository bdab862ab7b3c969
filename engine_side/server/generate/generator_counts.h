// What a generator has to do, and how long it stood still, in numbers, for metrics. Value.
#pragma once

#include <cstddef>

#include "src/metrics/durations.h"

namespace layercast {

struct GeneratorCounts {
  std::size_t running = 0;  // sequences
  std::size_t waiting = 0;
  Durations pauses{};  // for commits, and to fall asleep and wake
};

}  // namespace layercast
