// Which magnitudes of a checkpoint tensor the scales of a parameter follow from: what a rank asks for beyond the
// manifest, and where the answer has them. Used when a layout is prepared, and by the table of what came.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layer_recipes.h"
#include "src/tensor/axis_amax.h"

namespace layercast {

// How a placement's tensor, in the shape that it is read in, is matrices of the placement's parameter. Value.
struct SourceMatrices {
  Shape shape;
  Box part;  // of it: what goes to the parameter over all ranks, and nothing else
  // The axes that make up that of matrices, where both are a stack of them, and that of rows, the last the lowest.
  std::optional<std::vector<std::uint8_t>> stack = {};
  std::vector<std::uint8_t> rows = {};
  bool part_is_all = false;  // the tensor's own magnitude is that of each matrix

  static SourceMatrices Of(const LoadPlan& plan, const Manifest& manifest, const Placement& placement);
  // The axes that have to be told apart: matrices, rows, and those along which the tensor has other parts too. None:
  // the tensor's own magnitude will do.
  KeptAxes Needed(AmaxNeed need) const;
};

// The dimensions that a request keeps, of a shape and of a box: what its answer is of.
Shape KeptOf(const Shape& shape, KeptAxes kept);
Box KeptOf(const Box& box, KeptAxes kept);

// What a rank needs under `recipe` beyond the manifest, by tensor: magnitudes by row of weights that are sharded over
// columns, by matrix of tensors that hold a stack of them, and by part of tensors that are split. Throws kUnsupported,
// naming tensor and axes, where that is each of its elements.
std::vector<AmaxRequest> AmaxRequests(const LoadPlan& plan, const Manifest& manifest, const LayerRecipes& recipes);

}  // namespace layercast
