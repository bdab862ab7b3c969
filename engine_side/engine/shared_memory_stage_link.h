// The link between pipeline stages on one host: the sender's two parts of the segment in turn, so that it may be one
// part ahead of who takes them. Torch-free.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "engine_side/engine/collective_segment.h"
#include "engine_side/engine/stage_link.h"
#include "layercast/parallel.h"

namespace layercast {

// One rank's ends, towards both neighbours. The seat outlives it; errors name ranks by their seats.
class SharedMemoryStageLink final : public StageLink {
 public:
  SharedMemoryStageLink(SegmentSeat& seat, const ParallelConfig& parallel, std::chrono::milliseconds timeout);

  void Receive(std::span<float> values) override;
  void Send(std::span<const float> values) override;

 private:
  SegmentSeat& seat_;
  const int before_, next_;  // seats; outside the segment where there is no such stage
  const std::chrono::milliseconds timeout_;
  std::uint32_t sent_ = 0, taken_ = 0;  // parts
};

}  // namespace layercast
