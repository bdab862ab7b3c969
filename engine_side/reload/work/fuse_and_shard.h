// Stage 3 of the pipeline. Writes a piece of a checkpoint tensor to its place in the fused, sharded parameter: q, k and
// v into qkv, only this rank's part, cast to the model's dtype if the trainer's is another. Used by HostWork.
#pragma once

#include <cstddef>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "src/tensor/region.h"

namespace layercast {

// `view` holds the piece's bytes in the tensor's dtype `source`, and `memory` is the parameter's. The dtypes must be
// equal or castable, which the plan has checked. Returns what Cast returns (src/tensor/cast.h).
bool FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                  const TensorSpec& parameter, std::byte* memory);

}  // namespace layercast
