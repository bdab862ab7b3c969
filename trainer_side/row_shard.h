// What one rank holds of a checkpoint that is sharded over its first dimension, as PyTorch's FSDP2 shards parameters.
// For `layercast publish --part`, which has no trainer behind it.
#pragma once

#include "layercast/publisher.h"
#include "layercast/version.h"

namespace layercast {

// The rows of each tensor that `part.rank` has: as torch.chunk cuts them, so that the last ranks may have fewer, or
// none. A tensor without dimensions is rank 0's.
Weights RowShard(Weights weights, VersionPart part);

}  // namespace layercast
