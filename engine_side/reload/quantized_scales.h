// The scales of a layer that a checkpoint holds quantized, as numbers. Used by QuantizedCheckpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "layercast/tensor.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// Value; what it refers to outlives it. Everything throws kInvalidArgument or kCorrupt, naming layer, tensor and
// numbers, for scales of another shape and for those that cannot be.
class QuantizedScales {
 public:
  QuantizedScales(const Checkpoint& checkpoint, const QuantizedLayer& layer) : checkpoint_(checkpoint), layer_(layer) {}

  // What reading the scales of `part`, of which it has its own, or the number `tensor`, would refuse by its dtype and
  // shape.
  void Check(const QuantizedLayer::Part& part) const;
  void CheckNumbers(std::uint32_t tensor) const;
  std::vector<float> Of(const QuantizedLayer::Part& part) const;
  std::vector<float> GlobalOf(const QuantizedLayer::Part& part) const;
  float Largest(const QuantizedLayer::InputScale& of) const;
  Shape ShapeOf(const QuantizedLayer::Part& part) const;
  // As the layer takes them: where the checkpoint's have more or fewer dimensions of one, or are exponents (e8m0), they
  // have to be made.
  TensorSpec Taken(const QuantizedLayer::Part& part) const;
  // Whatever they are, in fp32.
  std::vector<float> NumbersOf(std::uint32_t tensor) const;

 private:
  void CheckGlobal(const QuantizedLayer::Part& part) const;

  const Checkpoint& checkpoint_;
  const QuantizedLayer& layer_;
};

}  // namespace layercast
