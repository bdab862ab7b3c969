// What the tree calls a checkpoint's tensors, by their names alone: of those too that do not fit. Used by the load
// plan's builder.
#pragma once

#include <vector>

#include "layercast/model/module.h"
#include "layercast/model/weights_mapper.h"

namespace layercast {

// One for each of the tensors that transforms make of `spec`, or of `spec` itself where they refuse it. Those that the
// mapper refuses are left out.
std::vector<WeightsMapper::Mapping> MappingsOf(const Module& model, const TensorSpec& spec);

}  // namespace layercast
