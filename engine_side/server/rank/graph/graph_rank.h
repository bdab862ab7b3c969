// A rank that computes by a decode graph on a GPU. The program `layercast-rank-cuda` runs it.
#pragma once

#include "engine_side/server/rank/process/rank_process.h"

namespace layercast {

// Runs like RunRank, with weights and cache in the memory of `device`.
int RunGraphRank(const RankOptions& options, const Device& device);

}  // namespace layercast
