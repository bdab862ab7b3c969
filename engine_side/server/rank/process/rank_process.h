// The rank process: takes the parent's calls, runs forward passes on its main thread, and stages new weights on
// another. `layercast serve` starts one for each rank.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/server/group/engine_options.h"
#include "layercast/memory.h"

namespace layercast {

// Value.
struct RankOptions : EngineOptions {
  int tp_rank = 0;
  int pp_rank = 0;
  // Inherited descriptors.
  int link_fd = -1;
  int weights_fd = -1;      // MemoryFile: captured buffers, in host memory
  int staging_fd = -1;      // MemoryFile: the copy that the commit policy keeps
  int version_fd = -1;      // a file with the staged version
  int model_files_fd = -1;  // ModelFiles: contents of the files named above at the engine's start
  int collective_fd = -1;   // CollectiveSegment of all ranks; -1 if there is one rank
};

// For a rank whose weights are in the memory of a device: they end with its process. Value.
struct RankOnDevice {
  std::function<std::unique_ptr<MemoryResource>()> open_memory;
  MakeForwardPass make;  // makes the forward pass on that device
};

// Runs the rank until the parent ends it or is gone. Returns the process's exit status. Without `on_device` it computes
// on the CPU.
int RunRank(const RankOptions& options, const std::optional<RankOnDevice>& on_device = std::nullopt);

}  // namespace layercast
