// The scales of one expert if a checkpoint has all experts' scales in one stack, beside experts that come one by one.
// Used by QuantizedCheckpoint.
#pragma once

#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

// Throws what ScalesOfExpert would throw because of the stack's dtype and shape, before any scale is read.
void CheckScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part);

// The scales of `part`, whose scale_is_of_stack is true. In the stack, gate's rows of blocks come before up's. Throws
// kInvalidArgument or kCorrupt, naming layer and tensor, if the stack has another shape or a scale cannot be right.
std::vector<float> ScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                  const QuantizedLayer::Part& part);

}  // namespace layercast
