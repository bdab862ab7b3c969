// Asks another engine of the same layout to lend its weights, before this engine's ranks fetch them. See `lend_weights`
// in RPC.md. Used by the reloader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/server/group/json_stream.h"
#include "layercast/dtype.h"
#include "layercast/parallel.h"
#include "src/base/deadline.h"
#include "src/net/keys/keys.h"

namespace layercast {

// What must be equal in two engines so that one can use the other's slots of adapters. Value.
struct AdapterLayout {
  std::int64_t max_rank = 0;
  DType dtype = DType::kBF16;
  std::vector<std::string> modules{};
};
Json ToJson(const AdapterLayout& layout);

// What must be equal in two engines so that one can use the other's kernel tensors. Value.
struct EngineLayout {
  int tp_size = 1;
  int pp_size = 1;
  std::vector<std::int64_t> pp_layers{};  // for each stage; empty: spread by the rule
  bool expert_parallel = false;
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe;
  bool power_of_two_scales = false;
  AdapterLayout adapters{};  // compared if adapters are borrowed
};

// Who borrows, and what. Value.
struct Borrower {
  std::string endpoint;  // at which it answers itself
  EngineLayout layout;
  bool adapters = false;  // those that the other engine serves too
  Keys keys{};            // by which it is admitted there
};

// Returns {"version", "ranks": [{"endpoint", "served_digest"}], "adapters"} of the engine at `endpoint`, which answers
// once it has ended what it is doing. Throws what RpcClient throws; kInvalidArgument if it is the borrower itself, or,
// naming the difference, if its layout is not the borrower's; kCorrupt if its answer lacks these fields.
Json Borrow(const std::string& endpoint, const Borrower& borrower, Deadline deadline);

}  // namespace layercast
