// The zero points of a weight that a checkpoint holds as asymmetric integers. Used by QuantizedCheckpoint.
#pragma once

#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// What ZeroPointsOf would refuse by their dtype and shape.
void CheckZeroPoints(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part);

// One for each scale of `part`, which is no stack of experts: a byte each beside codes in bytes, else as
// compressed-tensors packs them, several rows in an int32. Throws kInvalidArgument naming layer and tensor for those of
// another shape.
std::vector<float> ZeroPointsOf(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                const QuantizedLayer::Part& part);

}  // namespace layercast
