// Turns the parameters of the RPC `reload_weights`, and of a rank's `stage`, into a source of weights. RPC.md documents
// them. Each function throws kInvalidArgument naming a field that is wrong.
#pragma once

#include <nlohmann/json.hpp>

#include "layercast/reload_source.h"

namespace layercast {

// Whether the field is there and not null.
bool IsGiven(const nlohmann::ordered_json& params, const char* field);

// Checks that at most one of `weights_path`, `publisher`, `store` and `engine` is given, and that it is a string.
void CheckOneSource(const nlohmann::ordered_json& params);

// Where a `store` is given, says in full which of its versions is wanted, so that all ranks take the same one. Throws
// kNotFound.
void FindInStore(nlohmann::ordered_json& params);

// The checkpoint of `{"weights_path": DIR, "load_format": "auto", "secondary_weights": [{"prefix": P, "path": DIR}]}`.
CheckpointSource CheckpointFromJson(const nlohmann::ordered_json& params);

// Whether random weights are asked for: `{"load_format": "dummy", "seed": N}`.
bool IsDummy(const nlohmann::ordered_json& params);

// Whether each rank names the version that it loads by itself. That is so for a path of kernel tensors
// (`"is_checkpoint_format": false`, or what IsKernelFormat finds there) that nobody exported as a version: the tensors
// differ from rank to rank, and so does the name.
bool RanksNameTheirOwn(const nlohmann::ordered_json& params);

// The source that the parameters name. `{}` is the origin. A checkpoint or random weights are given as above,
// publishers as `{"publisher": "EP1,EP2", "lineage": L, "step": N, "digest": HEX}`, a store likewise
// by `{"store": DIR, ...}`. What another engine lends is given
// as follows, and each rank takes its own entry:
// `{"lent": {"version": VERSION, "ranks": [{"endpoint": EP, "served_digest": HEX}]}}`.
ReloadSource SourceFromJson(const nlohmann::ordered_json& params, int engine_rank);

}  // namespace layercast
