#include "engine_side/engine/ranks/shared_memory_stage_link.h"

#include <algorithm>
#include <cstddef>

#include "src/base/check.h"

namespace layercast {

SharedMemoryStageLink::SharedMemoryStageLink(SegmentSeat& seat, const ParallelConfig& parallel,
                                             std::chrono::milliseconds timeout)
    : seat_(seat), before_(seat.rank() - parallel.tp_size), next_(seat.rank() + parallel.tp_size), timeout_(timeout) {
  LAYERCAST_CHECK(seat.rank() == parallel.engine_rank() && seat.size() == parallel.engine_size());
}

void SharedMemoryStageLink::Receive(std::span<float> values) {
  LAYERCAST_CHECK(before_ >= 0);
  const std::size_t step = seat_.part_floats();
  for (std::size_t begin = 0; begin < values.size(); begin += step) {
    const std::span<float> now = values.subspan(begin, std::min(step, values.size() - begin));
    const Meeting sent(Operation::kHandOver, ++taken_, timeout_);
    std::ranges::copy(seat_.Read(before_, sent, now.size()), now.begin());
    seat_.Publish(Operation::kTaken, {});
  }
}

void SharedMemoryStageLink::Send(std::span<const float> values) {
  LAYERCAST_CHECK(next_ < seat_.size());
  const std::size_t step = seat_.part_floats();
  for (std::size_t begin = 0; begin < values.size(); begin += step) {
    // Publishing overwrites the part before the last one, so wait until the next stage has taken that.
    seat_.Await(next_, Meeting(Operation::kTaken, sent_ - 1, timeout_));
    sent_ = seat_.Publish(Operation::kHandOver, values.subspan(begin, std::min(step, values.size() - begin)));
  }
}

}  // namespace layercast
