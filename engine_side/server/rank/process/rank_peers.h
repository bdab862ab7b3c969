// The other ranks of an engine on the CPU, as this rank's forward pass reaches them. Used by the rank's process.
#pragma once

#include <memory>
#include <optional>

#include "engine_side/engine/ranks/collective.h"
#include "engine_side/engine/ranks/collective_segment.h"
#include "engine_side/engine/ranks/peers.h"
#include "engine_side/engine/ranks/stage_link.h"
#include "engine_side/server/rank/process/rank_options.h"

namespace layercast {

// Resource; for the forward thread.
class RankPeers {
 public:
  // Takes this rank's seat in the segment that the options name, if there are other ranks.
  explicit RankPeers(const RankOptions& options);
  Peers peers() { return {*collective_, stage_link_.get()}; }

 private:
  std::optional<CollectiveSegment> segment_;
  std::optional<SegmentSeat> seat_;
  std::unique_ptr<StageLink> stage_link_;  // null without a pipeline
  std::unique_ptr<Collective> collective_;
};

}  // namespace layercast
