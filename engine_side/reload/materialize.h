// Stage 2. From meta to memory: gives every parameter of one layer its full-precision memory. Only what no
// tensor fills is written here; the plan proves that tensors cover all the rest, and tests load over two byte fills to
// show it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/stage_work.h"
#include "layercast/memory.h"

namespace layercast {

// One block for a whole layer, so that layers which follow each other can use the same one. Move-only; one thread only.
struct MaterializedLayer {
  Buffer memory;
  std::vector<std::span<std::byte>> parameters;  // in it, in the order of the layer's parameters; each aligned to 64

  std::uint64_t num_bytes() const { return memory.size(); }
};

// Writes what no tensor fills of a parameter: padding, and what it is where nothing is there for its layer.
void FillUnsupplied(const PlannedParameter& parameter, std::byte* memory, StageWork& work);

// What Materialize takes for that layer.
std::uint64_t LayerBytes(const LoadPlan& plan, const PlannedLayer& layer);
MaterializedLayer Materialize(const LoadPlan& plan, const PlannedLayer& layer, StageWork& work);

}  // namespace layercast
