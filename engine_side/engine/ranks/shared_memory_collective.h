// The collective of ranks on one host: each rank writes into its part of a shared mapping, all meet, and all read.
// Torch-free.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "engine_side/engine/ranks/collective.h"
#include "engine_side/engine/ranks/collective_segment.h"
#include "layercast/parallel.h"

namespace layercast {

// One rank's end of the collective among the ranks that share its pipeline stage's layers. Resource; one thread only.
// The seat must outlive it. Errors name ranks by their seats.
class SharedMemoryCollective final : public Collective {
 public:
  SharedMemoryCollective(SegmentSeat& seat, const ParallelConfig& parallel, std::chrono::milliseconds timeout);

  int rank() const override { return seat_.rank() - first_; }
  int size() const override { return size_; }
  void AllReduceSum(std::span<float> values) override;
  void AllGather(std::span<const float> mine, std::span<float> all) override;

 private:
  // Publishes `mine` (at most one part) and returns when every rank has published its own of the same size.
  Meeting Exchange(Operation operation, std::span<const float> mine);

  // A rank can be at most one exchange ahead of another, so the part that it fills is never one that somebody still
  // reads, and one meeting per exchange is enough.
  SegmentSeat& seat_;
  const int first_, size_;  // the group's seats are consecutive, from first_ on
  const std::chrono::milliseconds timeout_;
};

}  // namespace layercast
