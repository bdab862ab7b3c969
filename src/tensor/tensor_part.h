// Whether a part of a tensor is one, and the one that was declared. Used by manifests, of what trainers say and of what
// comes over the wire, and by whoever walks a source.
#pragma once

#include <optional>
#include <string>

#include "layercast/tensor.h"

namespace layercast {

// Empty: `spec`, of the part's own shape, lies in the whole that the part names; else what is wrong.
std::string PartProblem(const TensorSpec& spec, const TensorPart& part);

// What a source yields is the part that it declared; a part that is the whole is none. Throws kInvalidArgument, naming
// `spec`.
void CheckYielded(const TensorSpec& spec, const std::optional<TensorPart>& declared,
                  const std::optional<TensorPart>& yielded);

// "[8:16, 0:32] of [64, 32]"
std::string Describe(const Shape& shape, const TensorPart& part);

}  // namespace layercast
