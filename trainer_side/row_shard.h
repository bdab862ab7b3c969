// What one rank holds of a checkpoint whose tensors are sharded over their first dimension, as PyTorch's FSDP2 shards
// parameters. Used by `layercast publish --part`, which has no trainer behind it.
#pragma once

#include "layercast/publisher.h"
#include "layercast/version.h"

namespace layercast {

// The rows of each tensor that `part.rank` has. They are cut as torch.chunk cuts them, so the last ranks may have
// fewer, or none. A tensor without dimensions belongs to rank 0.
Weights RowShard(Weights weights, VersionPart part);

}  // namespace layercast
