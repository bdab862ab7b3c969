// Whether a part of a tensor is one. Used by manifests, of what trainers say and of what comes over the wire.
#pragma once

#include <string>

#include "layercast/tensor.h"

namespace layercast {

// Empty: `spec`, of the part's own shape, lies in the whole that the part names; else what is wrong.
std::string PartProblem(const TensorSpec& spec, const TensorPart& part);

// "[8:16, 0:32] of [64, 32]"
std::string Describe(const Shape& shape, const TensorPart& part);

}  // namespace layercast
