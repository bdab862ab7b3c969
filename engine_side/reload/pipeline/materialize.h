// Stage 2 of the pipeline, from meta to memory: gives every parameter of a layer its full-precision memory. Only what
// no tensor fills is written here. The plan proves that tensors cover the rest; tests show it by loading over memory
// filled with two different bytes. Used by LayerBuffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/work/stage_work.h"
#include "layercast/memory.h"

namespace layercast {

// The memory of a whole layer in one block, so that the next layer can use the same block. Move-only; one thread only.
struct MaterializedLayer {
  Buffer memory;
  std::vector<std::span<std::byte>> parameters;  // in `memory`, by the layer's parameters; aligned to 64

  std::uint64_t num_bytes() const { return memory.size(); }
};

// Writes what no tensor fills of a parameter: its padding and, if the version has no tensor for its layer, its
// fallback.
void FillUnsupplied(const PlannedParameter& parameter, std::byte* memory, StageWork& work);

// The bytes that Materialize allocates for a layer.
std::uint64_t LayerBytes(const LoadPlan& plan, const PlannedLayer& layer);
MaterializedLayer Materialize(const LoadPlan& plan, const PlannedLayer& layer, StageWork& work);

}  // namespace layercast
