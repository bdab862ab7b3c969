// A rank that computes by a decode graph, on a GPU. What the program `layercast-rank-cuda` runs.
#pragma once

#include "engine_side/server/rank_process.h"

namespace layercast {

// As RunRank, with weights and cache in the memory of `device`.
int RunGraphRank(const RankOptions& options, const Device& device);

}  // namespace layercast
