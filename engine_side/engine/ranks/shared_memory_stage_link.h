// The link between pipeline stages on one host. The sender alternates between its two parts of the segment, so it may
// be one part ahead of the receiver. Torch-free.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "engine_side/engine/ranks/collective_segment.h"
#include "engine_side/engine/ranks/stage_link.h"
#include "layercast/parallel.h"

namespace layercast {

// One rank's ends of the links to both neighbouring stages. Resource; one thread only. The seat must outlive it. Errors
// name ranks by their seats.
class SharedMemoryStageLink final : public StageLink {
 public:
  SharedMemoryStageLink(SegmentSeat& seat, const ParallelConfig& parallel, std::chrono::milliseconds timeout);

  void Receive(std::span<float> values) override;
  void Send(std::span<const float> values) override;

 private:
  SegmentSeat& seat_;
  const int before_, next_;  // seats; outside the segment if there is no such stage
  const std::chrono::milliseconds timeout_;
  std::uint32_t sent_ = 0, taken_ = 0;  // counts of parts
};

}  // namespace layercast
