// How an engine asks another one of the same layout for its weights, before its own ranks fetch them. RPC.md:
// `lend_weights`. Used by the reloader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/server/json_stream.h"
#include "layercast/parallel.h"
#include "src/base/deadline.h"

namespace layercast {

// What must be equal for kernel tensors to be the same.
struct EngineLayout {
  int tp_size = 1;
  int pp_size = 1;
  std::vector<std::int64_t> pp_layers{};  // of each stage; empty: spread by the rule
  bool expert_parallel = false;
  ExpertPlacement expert_placement = ExpertPlacement::kContiguous;
  std::string recipe;
  bool power_of_two_scales = false;
};

// {"version", "ranks": [{"endpoint", "served_digest"}]} of the engine at `endpoint`. Throws what RpcClient throws;
// kInvalidArgument naming what differs of both engines' layouts; kCorrupt on an answer without
// these.
Json Borrow(const std::string& endpoint, const EngineLayout& mine, Deadline deadline);

}  // namespace layercast
