// Checks parts of tensors: that they lie in their tensors, and are those that were declared. Used by manifests, on what
// trainers declare and what comes over the wire, and wherever a source is walked.
#pragma once

#include <optional>
#include <string>

#include "layercast/tensor.h"

namespace layercast {

// What is wrong with a part, or empty if `spec`, whose shape is the part's own, lies in the whole that `part` names.
std::string PartProblem(const TensorSpec& spec, const TensorPart& part);

// Throws kInvalidArgument, naming `spec`, unless the part that a source yields is the one that it declared. A part that
// is the whole tensor counts as no part.
void CheckYielded(const TensorSpec& spec, const std::optional<TensorPart>& declared,
                  const std::optional<TensorPart>& yielded);

// The part in words, for a part of this shape: "[8:16, 0:32] of [64, 32]".
std::string Describe(const Shape& shape, const TensorPart& part);
// "'lm_head.weight'", or "'lm_head.weight' [8:16, 0:32] of [64, 32]".
std::string DescribePart(const NamedTensor& named);

}  // namespace layercast
