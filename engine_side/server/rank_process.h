// What a rank process does: takes the parent's calls, runs forward passes on its main thread, and stages new weights on
// another. `layercast serve` starts one for each rank.
#pragma once

#include <string>

namespace layercast {

struct RankOptions {
  std::string model;  // folder with config.json
  int tp_rank = 0;
  int tp_size = 1;
  std::string recipe = "none";
  bool power_of_two_scales = false;
  bool requantize = false;
  std::uint64_t chunk_bytes = 4U << 20;
  std::string engine;  // its name, in handshakes
  // Inherited descriptors.
  int link_fd = -1;
  int weights_fd = -1;     // MemoryFile: captured buffers
  int staging_fd = -1;     // MemoryFile: the staged copy
  int manifest_fd = -1;    // a file: the manifest of what is staged
  int collective_fd = -1;  // CollectiveSegment; -1 for a single rank
};

// Until the parent says so or is gone. Returns the process's exit status.
int RunRank(const RankOptions& options);

}  // namespace layercast
