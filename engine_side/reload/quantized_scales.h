// The scales of a layer that a checkpoint holds quantized, as numbers. Used by QuantizedCheckpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// Value; what it refers to outlives it. Everything throws kInvalidArgument or kCorrupt, naming layer, tensor and
// numbers, for scales of another shape and for those that cannot be.
class QuantizedScales {
 public:
  QuantizedScales(const Checkpoint& checkpoint, const QuantizedLayer& layer) : checkpoint_(checkpoint), layer_(layer) {}

  std::vector<float> Of(const QuantizedLayer::Part& part) const;
  std::vector<float> GlobalOf(const QuantizedLayer::Part& part) const;
  float Largest(const QuantizedLayer::InputScale& of) const;
  // As the layer takes them, and whether the checkpoint's have more or fewer dimensions of one.
  Shape ShapeOf(const QuantizedLayer::Part& part) const;
  bool HaveAnotherShape(const QuantizedLayer::Part& part) const;
  // Whatever they are, in fp32.
  std::vector<float> NumbersOf(std::uint32_t tensor) const;

 private:
  const Checkpoint& checkpoint_;
  const QuantizedLayer& layer_;
};

}  // namespace layercast
