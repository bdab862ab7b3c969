#include "engine_side/engine/ranks/shared_memory_collective.h"

#include <algorithm>

#include "src/base/check.h"

namespace layercast {

SharedMemoryCollective::SharedMemoryCollective(SegmentSeat& seat, const ParallelConfig& parallel,
                                               std::chrono::milliseconds timeout)
    : seat_(seat), first_(parallel.pp_rank * parallel.tp_size), size_(parallel.tp_size), timeout_(timeout) {
  LAYERCAST_CHECK(seat.rank() == parallel.engine_rank() && seat.size() == parallel.engine_size());
}

void SharedMemoryCollective::AllReduceSum(std::span<float> values) {
  const std::size_t step = seat_.part_floats();
  for (std::size_t begin = 0; begin < values.size(); begin += step) {
    const std::span<float> now = values.subspan(begin, std::min(step, values.size() - begin));
    const Meeting meeting = Exchange(Operation::kAllReduceSum, now);
    std::ranges::copy(seat_.Read(first_, meeting, now.size()), now.begin());
    for (int peer = 1; peer < size_; ++peer) {
      const float* theirs = seat_.Read(first_ + peer, meeting, now.size()).data();
      for (std::size_t i = 0; i < now.size(); ++i) now[i] += theirs[i];
    }
  }
}

void SharedMemoryCollective::AllGather(std::span<const float> mine, std::span<float> all) {
  LAYERCAST_CHECK(all.size() == mine.size() * static_cast<std::size_t>(size_));
  const std::size_t step = seat_.part_floats();
  for (std::size_t begin = 0; begin < mine.size(); begin += step) {
    const std::span<const float> now = mine.subspan(begin, std::min(step, mine.size() - begin));
    const Meeting meeting = Exchange(Operation::kAllGather, now);
    for (int peer = 0; peer < size_; ++peer) {
      const std::size_t to = static_cast<std::size_t>(peer) * mine.size() + begin;
      std::ranges::copy(seat_.Read(first_ + peer, meeting, now.size()), all.begin() + static_cast<std::ptrdiff_t>(to));
    }
  }
}

Meeting SharedMemoryCollective::Exchange(Operation operation, std::span<const float> mine) {
  const Meeting meeting(operation, seat_.Publish(operation, mine), timeout_);
  for (int peer = 0; peer < size_; ++peer) {
    if (first_ + peer != seat_.rank()) static_cast<void>(seat_.Read(first_ + peer, meeting, mine.size()));
  }
  return meeting;
}

}  // namespace layercast
