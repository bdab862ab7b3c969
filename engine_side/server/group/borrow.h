// Asks another engine of the same layout to lend its weights, before this engine's ranks fetch them. See `lend_weights`
// in RPC.md. Used by the reloader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/server/group/json_stream.h"
#include "layercast/parallel.h"
#include "src/base/deadline.h"

namespace layercast {

// What must be equal in two engines so that one can use the other's kernel tensors. Value.
struct EngineLayout {
  int tp_size = 1;
  int pp_size = 1;
  std::vector<std::int64_t> pp_layers{};  // for each stage; empty: spread by the rule
  bool expert_parallel = false;
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe;
  bool power_of_two_scales = false;
};

// Returns {"version", "ranks": [{"endpoint", "served_digest"}]} of the engine at `endpoint`, which answers once it has
// ended what it is doing. Throws what RpcClient throws; kInvalidArgument if it is the borrower itself, which answers at
// `own_endpoint`, or, naming the difference, if its layout is not `mine`; kCorrupt if its answer lacks these fields.
Json Borrow(const std::string& endpoint, const std::string& own_endpoint, const EngineLayout& mine, Deadline deadline);

}  // namespace layercast
