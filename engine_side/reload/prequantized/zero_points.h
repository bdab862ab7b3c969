// The zero points of a weight that a checkpoint holds as asymmetric integers. Used by QuantizedCheckpoint.
#pragma once

#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

// Throws what ZeroPointsOf would throw because of dtype and shape, before any zero point is read.
void CheckZeroPoints(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part);

// The zero points of `part`, one for each of its scales. The part must not be a stack of experts. Beside codes of a
// byte each, a zero point is a byte; otherwise zero points are packed as compressed-tensors does it, several rows in an
// int32. Throws kInvalidArgument, naming layer and tensor, if they have another shape.
std::vector<float> ZeroPointsOf(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                const QuantizedLayer::Part& part);

}  // namespace layercast
