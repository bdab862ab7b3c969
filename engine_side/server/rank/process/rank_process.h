// The rank process: takes the parent's calls, runs forward passes on its main thread, and stages new weights on
// another. `layercast serve` starts one for each rank.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/server/rank/process/rank_options.h"
#include "layercast/memory.h"
#include "src/base/memory/sleepable_memory.h"

namespace layercast {

// For a rank whose weights are in the memory of a device: they end with its process. Value.
struct RankOnDevice {
  std::function<std::unique_ptr<SleepableMemory>()> open_memory;  // for weights, and once more for caches
  std::function<MakeForwardPass(MemoryResource& caches)> make;    // makes what makes the forward pass on that device
};

// Runs the rank until the parent ends it or is gone. Returns the process's exit status. Without `on_device` it computes
// on the CPU.
int RunRank(const RankOptions& options, const std::optional<RankOnDevice>& on_device = std::nullopt);

}  // namespace layercast
