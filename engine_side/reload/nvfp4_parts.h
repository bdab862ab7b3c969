// The parts of layers whose weights a checkpoint holds in NVFP4, under the recipe's names and with one global scale for
// what is fused. Used by QuantizedCheckpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// Value; what it refers to outlives it. Everything throws kInvalidArgument or kCorrupt, naming layer, tensor and
// numbers, for scales of another shape and for global ones that cannot be.
class Nvfp4Parts {
 public:
  Nvfp4Parts(const Checkpoint& checkpoint, const QuantizedLayer& layer) : checkpoint_(checkpoint), layer_(layer) {}

  // A part's, as the recipe has them: where the checkpoint's is its reciprocal, what that is of. One for each expert of
  // a stack, which may have one for all.
  std::vector<float> GlobalScales(const QuantizedLayer::Part& part) const;
  float LargestGlobalScale(const QuantizedLayer::Fused& fused) const;
  // Of all parts, one after another, under the largest of their global scales.
  void Codes(const QuantizedLayer::Fused& fused, std::byte* codes) const;
  void Scales(const QuantizedLayer::Fused& fused, std::byte* scales) const;

 private:
  float GlobalScale(const QuantizedLayer::Part& part) const { return GlobalScales(part).front(); }  // of no stack
  void Rescale(const QuantizedLayer::Fused& fused, std::byte* codes, std::byte* scales) const;
  std::int64_t BlocksOf(const QuantizedLayer::Part& part) const;

  const Checkpoint& checkpoint_;
  const QuantizedLayer& layer_;
};

}  // namespace layercast
