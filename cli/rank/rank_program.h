// What the programs of ranks share: their arguments, which `layercast serve` passes
// (engine_side/server/group/rank_group.cc), and how they handle an error.
#pragma once

#include <functional>

#include "engine_side/server/rank/process/rank_process.h"

namespace layercast {

// A rank's `main`. Returns what `run` returns. If `run` throws, logs that and returns 1.
int RankMain(int argc, char** argv, const std::function<int(const RankOptions& options)>& run);

}  // namespace layercast
