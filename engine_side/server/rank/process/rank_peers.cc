#include "engine_side/server/rank/process/rank_peers.h"

#include <chrono>

#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "engine_side/engine/ranks/shared_memory_stage_link.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kCollectiveTimeout{20'000};
// A stage waits while those before it compute a whole pass. This is a little less than the parent allows for a step, so
// that a rank can still say whom it waited for.
constexpr std::chrono::milliseconds kStageTimeout{55'000};

}  // namespace

RankPeers::RankPeers(const RankOptions& options) {
  const ParallelConfig parallel = ParallelOf(options);
  if (options.collective_fd >= 0) {
    segment_.emplace(CollectiveSegment::Attach(options.collective_fd));
    seat_.emplace(*segment_, parallel.engine_rank());
  }
  if (parallel.pp_size > 1) stage_link_ = std::make_unique<SharedMemoryStageLink>(*seat_, parallel, kStageTimeout);
  if (parallel.tp_size > 1) {
    collective_ = std::make_unique<SharedMemoryCollective>(*seat_, parallel, kCollectiveTimeout);
  } else {
    collective_ = std::make_unique<SingleRank>();
  }
}

}  // namespace layercast
