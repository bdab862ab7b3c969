// A reload as it travels between processes: JSON to ReloadSource and back. RPC.md of this folder lists the fields.
#pragma once

#include <nlohmann/json.hpp>

#include "layercast/receiver.h"

namespace layercast {

// `{}`: the origin. `{"weights_path": DIR}`, or `{"publisher": ENDPOINT, "lineage": L, "step": N}`; with
// `"is_checkpoint_format": false` the path holds kernel tensors. Throws kInvalidArgument naming a field that is wrong.
ReloadSource SourceFromJson(const nlohmann::ordered_json& params);

}  // namespace layercast
