// The parameters of the RPC `reload_weights`, and of a rank's `stage`, as a source of weights. RPC.md documents them.
// Each of these throws kInvalidArgument naming a field that is wrong.
#pragma once

#include <nlohmann/json.hpp>

#include "layercast/receiver.h"

namespace layercast {

// It is there, and not null.
bool IsGiven(const nlohmann::ordered_json& params, const char* field);

// That there are not two of `weights_path`, `publisher` and `engine`, and that it is text.
void CheckOneSource(const nlohmann::ordered_json& params);

// `{"weights_path": DIR, "load_format": "auto", "secondary_weights": [{"prefix": P, "path": DIR}]}`.
CheckpointSource CheckpointFromJson(const nlohmann::ordered_json& params);

// `{"load_format": "dummy", "seed": N}`.
bool IsDummy(const nlohmann::ordered_json& params);

// A path whose tensors are kernel tensors (`"is_checkpoint_format": false`, or what IsKernelFormat finds there) which
// nobody exported as a version: they are each rank's own, and so is what they are called together.
bool RanksNameTheirOwn(const nlohmann::ordered_json& params);

// `{}`: the origin. A checkpoint or random weights as above, or `{"publisher": "EP1,EP2", "lineage": L, "step": N}`, or
// what another engine lends: `{"lent": {"version": VERSION, "ranks": [{"endpoint": EP, "served_digest": HEX}]}}`, of
// which a rank takes its own.
ReloadSource SourceFromJson(const nlohmann::ordered_json& params, int engine_rank);

}  // namespace layercast
