// What an engine is, in its ready line and in each of its statuses. Used by the engine's service.
#pragma once

#include <unistd.h>

#include <vector>

#include "engine_side/server/adapter_calls.h"
#include "engine_side/server/group/rank_group.h"

namespace layercast {

inline Json IdentityOf(const RankGroupOptions& ranks, const std::vector<int>& pids, const AdapterBytes& adapters) {
  return {{"pid", ::getpid()},
          {"pids", pids},
          {"tp", ranks.tp_size},
          {"pp", ranks.pp_size},
          {"expert_parallel", ranks.expert_parallel},
          {"expert_placement", ExpertPlacementName(ranks.expert_placement)},
          {"quantization", ranks.recipe},
          {"device", ranks.on_device ? "cuda" : "cpu"},
          {"adapter_slots", ranks.adapter_slots},
          {"adapter_bytes", adapters.slots},
          {"host_adapters", ranks.host_adapters},
          {"host_adapter_bytes", adapters.host_copies}};
}

}  // namespace layercast
