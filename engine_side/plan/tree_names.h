// The names that the tree gives to a checkpoint's tensors, found from their names alone, so that it works even for
// tensors that do not fit. Used by the load plan's builder.
#pragma once

#include <vector>

#include "layercast/model/weights_mapper.h"

namespace layercast {

class Module;

// One mapping for each tensor that the transforms make of `spec`, or for `spec` itself if they refuse it. Names that
// the mapper refuses are left out.
std::vector<WeightsMapper::Mapping> MappingsOf(const Module& model, const TensorSpec& spec);

}  // namespace layercast
