// What the relays of an engine's ranks have served, as ranks tell their engine.
#pragma once

#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "src/control/json_forms.h"
#include "src/session/takers/taker_tally.h"

namespace layercast {

// {"sessions", "bytes", "refusals": {code: count}}
Json RelayCountsToJson(const TakerCounts& counts);
// Of each rank, null for one that does not answer; of none if they do not relay. Ranks answer at once, whatever they
// are doing.
std::vector<Json> RelayCountsOf(RankGroup& ranks);

}  // namespace layercast
