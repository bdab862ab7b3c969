// The rank process: takes the parent's calls, runs forward passes on its main thread, and stages new weights on
// another. `layercast serve` starts one for each rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/engine/forward_pass.h"
#include "layercast/commit_policy.h"
#include "layercast/model/held_scales.h"
#include "layercast/tensor.h"

namespace layercast {

struct RankOptions {
  std::string model;  // folder with a config.json
  std::string draft;  // see NamedDraft
  int tp_rank = 0;
  int tp_size = 1;
  int pp_rank = 0;
  int pp_size = 1;
  std::vector<std::int64_t> pp_layers;  // ParallelConfig's pp_layer_partition
  bool expert_parallel = false;         // experts are spread over the ranks
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe = "none";
  bool power_of_two_scales = false;
  bool requantize = false;
  HeldScales scales;
  std::string weight_rules;  // a file, or empty
  std::uint64_t chunk_bytes = 4U << 20;
  std::uint64_t buffer_limit = 0;  // see ReceiverOptions
  std::string channel;             // for a reload that names none; empty: the fastest
  std::string relay;               // see ReceiverOptions
  bool allow_remote = false;       // ReceiverOptions' relay_remote
  CommitPolicy commit = CommitPolicy::kStaged;
  std::int64_t max_num_seqs = 0;   // on a device: most sequences at once
  std::int64_t max_model_len = 0;  // on a device: most tokens of a sequence
  std::string engine;              // its name in handshakes
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
  Device device;
  MakeForwardPass make;  // makes the forward pass on that device
};

// Runs the rank until the parent ends it or is gone. Returns the process's exit status. Without `on_device` it computes
// on the CPU.
int RunRank(const RankOptions& options, const std::optional<RankOnDevice>& on_device = std::nullopt);

}  // namespace layercast
