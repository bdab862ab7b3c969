// A reload as it travels between processes: JSON to ReloadSource and back. RPC.md of this folder lists the fields.
#pragma once

#include <nlohmann/json.hpp>

#include "layercast/receiver.h"

namespace layercast {

// `{"weights_path": DIR, "load_format": "auto", "secondary_weights": [{"prefix": P, "path": DIR}]}`. Throws
// nlohmann::json::exception.
CheckpointSource CheckpointFromJson(const nlohmann::ordered_json& params);

// `{"load_format": "dummy", "seed": N}`.
bool IsDummy(const nlohmann::ordered_json& params);

// `{}`: the origin. A checkpoint or random weights as above, or `{"publisher": ENDPOINT, "lineage": L, "step": N}`;
// with
// `"is_checkpoint_format": false` the path holds kernel tensors. Throws kInvalidArgument naming a field that is wrong.
ReloadSource SourceFromJson(const nlohmann::ordered_json& params);

}  // namespace layercast
