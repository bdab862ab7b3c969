// What all ranks of an engine are told alike, and the argument by which their processes get it. Used by the parent, and
// by the ranks' programs (cli/rank/rank_program.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layercast/commit_policy.h"
#include "layercast/dtype.h"
#include "layercast/keys/key_options.h"
#include "layercast/model/held_scales.h"
#include "layercast/noise/noise.h"
#include "layercast/parallel.h"
#include "layercast/transfer_cost.h"

namespace layercast {

// Value.
struct EngineOptions {
  std::string engine;   // its name in handshakes
  std::string model;    // a folder with a config.json
  std::string draft{};  // see NamedDraft
  int tp_size = 1;
  int pp_size = 1;                        // stages, of tp_size ranks each
  std::vector<std::int64_t> pp_layers{};  // ParallelConfig's pp_layer_partition
  bool expert_parallel = false;           // experts are spread over the ranks
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe = "none";
  bool power_of_two_scales = false;
  bool requantize = false;
  HeldScales scales{};
  std::string weight_rules{};            // a file, or empty
  std::uint64_t chunk_bytes = 4U << 20;  // most bytes of a chunk in a reload
  std::uint64_t buffer_limit = 0;        // of each rank: see ReceiverOptions
  std::string channel{};                 // for a reload that names none; empty: the fastest
  std::string relay{};                   // of each rank: see ReceiverOptions
  bool keep_source = false;              // of each rank: see ReceiverOptions, as is delta
  DeltaUse delta = DeltaUse::kAuto;
  KeyOptions keys{};  // of the engine's own sockets, and of its ranks'
  CommitPolicy commit = CommitPolicy::kStaged;
  std::int64_t max_num_seqs = 256;  // most sequences generated at once
  std::int64_t max_model_len = 0;   // most tokens of a sequence; 0: the model's limit
  std::size_t adapter_slots = 0;    // LoRA adapters that there is memory for; 0: none
  std::size_t host_adapters = 0;    // those that are kept beside, in host copies
  std::int64_t max_adapter_rank = 16;
  std::vector<std::string> adapter_modules{};  // that adapters may change; empty: all that can be
  DType adapter_dtype = DType::kBF16;          // of the slots
  NoiseUse noise = NoiseUse::kShared;          // what becomes of noise that versions carry
  bool keep_previous = false;                  // each rank keeps the bytes that it served before, in host memory
};

// How many host copies an engine needs that keeps so many adapters in them: one more, into which an adapter leaves its
// slot for another one, whose own copy is free only after that.
inline std::size_t HostCopiesFor(std::size_t host_adapters) { return host_adapters == 0 ? 0 : host_adapters + 1; }

// As JSON, for a rank's --options.
std::string ToArgument(const EngineOptions& options);
// Throws kInvalidArgument if the argument is not what ToArgument makes.
EngineOptions EngineOptionsFrom(const std::string& argument);

}  // namespace layercast
