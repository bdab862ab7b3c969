// What a rank process does: takes the parent's calls, runs forward passes on its main thread, and stages new weights on
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
  std::string model;  // folder with config.json
  std::string draft;  // NamedDraft's
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
  std::uint64_t buffer_limit = 0;  // ReceiverOptions'
  std::string channel;             // where a reload names none; empty: the fastest
  std::string relay;               // ReceiverOptions'
  bool allow_remote = false;       // ... relay_remote
  CommitPolicy commit = CommitPolicy::kStaged;
  std::int64_t max_num_seqs = 0;   // on a device: sequences at once
  std::int64_t max_model_len = 0;  // on a device: tokens of a sequence
  std::string engine;              // its name, in handshakes
  // Inherited descriptors.
  int link_fd = -1;
  int weights_fd = -1;      // MemoryFile: captured buffers, in host memory
  int staging_fd = -1;      // MemoryFile: what the commit policy keeps of them
  int version_fd = -1;      // a file: the version that is staged
  int model_files_fd = -1;  // ModelFiles: what `model`, `draft` and `weight_rules` said when the engine was started
  int collective_fd = -1;   // CollectiveSegment of all ranks; -1 for a single one
};

// A rank whose weights lie in the memory of a device: they end with its process.
struct RankOnDevice {
  Device device;
  MakeForwardPass make;  // of what computes there
};

// Until the parent says so or is gone. Returns the process's exit status. Without a device it computes on the CPU.
int RunRank(const RankOptions& options, const std::optional<RankOnDevice>& on_device = std::nullopt);

}  // namespace layercast
