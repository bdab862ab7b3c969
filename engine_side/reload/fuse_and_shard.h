// Stage 3. Writes a piece of a checkpoint tensor to its place in the fused, sharded parameter: q, k and v into qkv,
// this rank's part alone, cast to the model's dtype where the trainer's differs.
#pragma once

#include <cstddef>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "src/tensor/region.h"

namespace layercast {

// `view` holds the piece's bytes in the tensor's dtype `source`; `memory` is the parameter's. Requires that the dtypes
// are equal or castable, which the plan has checked.
void FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                  const TensorSpec& parameter, std::byte* memory);

}  // namespace layercast
