// What a version cost its trainer, as frames carry it.
#pragma once

#include "layercast/transfer_cost.h"
#include "src/base/threads/work_clock.h"
#include "src/wire/frames.h"

namespace layercast {

inline wire::TrainerCost ToWire(const WorkCost& cost) {
  return {.held_up_us = static_cast<std::uint64_t>(cost.seconds * 1e6),
          .core_us = static_cast<std::uint64_t>(cost.core_seconds * 1e6)};
}

inline void Note(const wire::TrainerCost& cost, PublisherShare& share) {
  share.held_up_seconds = static_cast<double>(cost.held_up_us) * 1e-6;
  share.core_seconds = static_cast<double>(cost.core_us) * 1e-6;
}

}  // namespace layercast
