// What a rank is started with, and what follows from it. Used by the rank's process and by the program that runs it.
#pragma once

#include "engine_side/server/group/engine_options.h"
#include "layercast/parallel.h"
#include "layercast/receiver_options.h"

namespace layercast {

// Value.
struct RankOptions : EngineOptions {
  int tp_rank = 0;
  int pp_rank = 0;
  // Inherited descriptors.
  int link_fd = -1;
  int weights_fd = -1;      // MemoryFile: captured buffers, in host memory
  int staging_fd = -1;      // MemoryFile: the copy that the commit policy keeps
  int adapters_fd = -1;     // MemoryFile: host copies of adapters
  int version_fd = -1;      // a file with the staged version
  int model_files_fd = -1;  // ModelFiles: contents of the files named above at the engine's start
  int collective_fd = -1;   // CollectiveSegment of all ranks; -1 if there is one rank
};

// The rank's place in the engine.
ParallelConfig ParallelOf(const RankOptions& options);
QuantizationConfig QuantizationOf(const RankOptions& options);
// What its receiver is told, but for memory and progress.
ReceiverOptions ReceiverOptionsOf(const RankOptions& options);

}  // namespace layercast
