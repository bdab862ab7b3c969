// Stage 2. From meta to memory: gives every parameter of one layer its full-precision memory. Only padding is written
// here; the plan proves that tensors cover all the rest, and tests load over two byte fills to show it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/memory.h"

namespace layercast {

// Move-only; one thread only.
struct MaterializedLayer {
  std::vector<Buffer> parameters;  // in the order of the layer's parameters

  std::uint64_t num_bytes() const;
};

MaterializedLayer Materialize(const LoadPlan& plan, const PlannedLayer& layer, MemoryResource& memory);

}  // namespace layercast
