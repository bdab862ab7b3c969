// A tensor that a layer computes from its own parameters: no checkpoint holds it, and it is served like any other
// (MLA's W_UK_T and W_UV, a state space's A). Value.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "layercast/tensor.h"

namespace layercast {

struct DerivedTensor {
  // Writes all of the tensor, row-major. `sources`: the parameters' elements, row-major, in the order of `sources`
  // below. Pure: the same bytes for the same sources.
  using Compute =
      std::function<void(std::span<const std::span<const std::byte>> sources, std::span<std::byte> derived)>;

  TensorSpec spec;  // name within its layer ("W_UV"); this rank's shape
  // Parameters of the layer, by name, as `compute` takes them: this rank's part, fused. One that is served quantized is
  // dequantized to this dtype, so that what derives from it is what the engine serves of it.
  std::vector<TensorSpec> sources;
  Compute compute;
};

}  // namespace layercast
