// The scales of one expert, of those that a checkpoint has stacked beside experts that come one by one. Used by
// QuantizedCheckpoint.
#pragma once

#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// What ScalesOfExpert would refuse by the stack's dtype and shape.
void CheckScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part);

// Of `part`, whose scale_is_of_stack: gate's rows of blocks are before up's. Throws kInvalidArgument or kCorrupt,
// naming layer and tensor, for a stack of another shape and for scales that cannot be.
std::vector<float> ScalesOfExpert(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                  const QuantizedLayer::Part& part);

}  // namespace layercast
