// What the programs of ranks share: their arguments, which `layercast serve` gives (engine_side/server/rank_group.cc),
// and what is done about an error.
#pragma once

#include <functional>

#include "engine_side/server/rank_process.h"

namespace layercast {

// A rank's `main`. Returns what `run` does, or 1 when that throws, which is logged.
int RankMain(int argc, char** argv, const std::function<int(const RankOptions& options)>& run);

}  // namespace layercast
