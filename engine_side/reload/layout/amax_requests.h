// Which magnitudes of a checkpoint tensor determine the scales of a parameter: what a rank must ask for beyond the
// manifest, and where the answer has them. Used when a layout is prepared, and by AmaxTable.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "src/tensor/kernels/axis_amax.h"

namespace layercast {

// How the tensor of a placement, in the shape in which it is read, is made up of matrices of the placement's parameter.
// Value.
struct SourceMatrices {
  Shape shape;
  Box part;  // of `shape`: what all ranks together put into the parameter
  // `stack` has the axes that number the matrices, if both tensor and parameter are a stack of them. `rows` has the
  // axes that number the rows of a matrix. The last axis counts fastest.
  std::optional<std::vector<std::uint8_t>> stack = {};
  std::vector<std::uint8_t> rows = {};
  bool part_is_all = false;  // the tensor's own magnitude is that of each matrix in it

  static SourceMatrices Of(const LoadPlan& plan, const Manifest& manifest, const Placement& placement);
  // The axes that the magnitudes must keep for this need: those of matrices and of rows, and those along which the
  // tensor has other parts too. 0 if the tensor's own magnitude is enough.
  KeptAxes Needed(AmaxNeed need) const;
};

// A shape or a box reduced to the dimensions that a request keeps, as its answer has them.
Shape KeptOf(const Shape& shape, KeptAxes kept);
Box KeptOf(const Box& box, KeptAxes kept);

// The magnitudes that a rank needs beyond those in the manifest, sorted by tensor: by row for weights that are sharded
// over columns, by matrix for tensors that hold a stack of them, and by part for tensors that are split. Throws
// kUnsupported, naming tensor and axes, if these would be the magnitudes of every single element.
std::vector<AmaxRequest> AmaxRequests(const LoadPlan& plan, const Manifest& manifest, const LayerRecipes& recipes);

}  // namespace layercast
