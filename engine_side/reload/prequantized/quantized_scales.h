// The scales of a layer that a checkpoint holds quantized, as fp32 numbers. Used by QuantizedCheckpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "layercast/tensor.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

// Value; borrows the checkpoint and the layer. Every method that reads or checks throws kInvalidArgument or kCorrupt,
// naming layer, tensor and numbers, if scales have another shape or cannot be right.
class QuantizedScales {
 public:
  QuantizedScales(const Checkpoint& checkpoint, const QuantizedLayer& layer) : checkpoint_(checkpoint), layer_(layer) {}

  // Both throw, before anything is read, what reading would throw because of dtype and shape: Check for the scales of
  // `part`, which must have its own, and CheckNumbers for the numbers in `tensor`.
  void Check(const QuantizedLayer::Part& part) const;
  void CheckNumbers(std::uint32_t tensor) const;
  std::vector<float> Of(const QuantizedLayer::Part& part) const;
  std::vector<float> GlobalOf(const QuantizedLayer::Part& part) const;
  float Largest(const QuantizedLayer::InputScale& of) const;
  Shape ShapeOf(const QuantizedLayer::Part& part) const;
  // The spec of the part's scales as the layer takes them. If it differs from the checkpoint's, the scales must be
  // made: the checkpoint's have more or fewer dimensions of size 1, or are exponents (e8m0).
  TensorSpec Taken(const QuantizedLayer::Part& part) const;
  // The numbers of a tensor, of whatever dtype, in fp32.
  std::vector<float> NumbersOf(std::uint32_t tensor) const;

 private:
  void CheckGlobal(const QuantizedLayer::Part& part) const;

  const Checkpoint& checkpoint_;
  const QuantizedLayer& layer_;
};

}  // namespace layercast
