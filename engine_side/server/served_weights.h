// Exports, compares and lends the weights that an engine serves, over all its ranks. Used by the engine's service,
// while no reload runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <stop_token>
#include <string>

#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/group/rank_group.h"
#include "layercast/model_description.h"
#include "src/control/json_forms.h"

namespace layercast {

// How long a rank may take for what it does to all of its weights.
inline constexpr std::chrono::milliseconds kRankTimeout{600'000};

// Writes the served weights to `directory` as `sharded_state`, labelled `version`, with the model's config.json.
// Returns {"files", "tensors", "bytes", "version"}. Throws what a rank or ExportFolder throws; the directory then has
// no export, or still an earlier one, unless the error says that it could not be put back.
Json ExportServed(RankGroup& ranks, const Version& version, const ModelDescription& description,
                  const std::string& directory);

// Compares the served weights with a cold load of the checkpoint that `params` names. Returns {"equal", "tensors",
// "bytes", "differences"}. Throws what a rank does, and soon once `abandoned` stops; the ranks then end the comparison,
// which they know by its number, as well.
Json CompareServed(RankGroup& ranks, Json params, std::uint64_t comparison, const std::stop_token& abandoned);

// Likewise the slot of the adapter that `params` names, with a cold load of the adapter's folder. Throws kNotFound if
// there is no such adapter.
Json CompareAdapter(RankGroup& ranks, AdapterRegistry& adapters, const Json& params);

// How an engine lends. Value.
struct Lending {
  std::string endpoint;   // the engine's; each rank lends at the same address
  bool adapters = false;  // those that are served too
};
// Lends the served weights. `status` is the Reloader's, and has the version that they are lent as. Returns what RPC.md
// says. Throws kFailedPrecondition if the engine is torn.
Json LendServed(RankGroup& ranks, const Json& status, const Lending& how);

}  // namespace layercast
