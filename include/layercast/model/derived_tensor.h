// A tensor that a layer computes from its own parameters: no checkpoint holds it, and it is served like any other
// (MLA's W_UK_T and W_UV, a state space's A). Value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "layercast/tensor.h"

namespace layercast {

struct DerivedTensor {
  // A strided view of the one source, as torch's as_strided: element [i, j, ...] is the source's element
  // offset + i * strides[0] + j * strides[1] + ... At most four dimensions, of the source's dtype.
  struct StridedView {
    static constexpr std::size_t kMaxRank = 4;
    std::vector<std::int64_t> strides;  // in elements, none negative
    std::int64_t offset = 0;
  };
  // -exp(x) in fp32 of each element of the one source, which has the same shape: e^x of the element as fp32, in fp64,
  // rounded.
  struct NegatedExponential {};
  // What nothing here has a name for. Writes all of the tensor, row-major. `sources`: the parameters' elements,
  // row-major, in the order of `sources` below. Pure: the same bytes for the same sources. The host calls it: an engine
  // on a device brings the sources to it, and waits for them.
  using Compute =
      std::function<void(std::span<const std::span<const std::byte>> sources, std::span<std::byte> derived)>;

  TensorSpec spec;  // name within its layer ("W_UV"); this rank's shape
  // Parameters of the layer, by name: this rank's part, fused. One that is served quantized is dequantized to this
  // dtype, so that what derives from it is what the engine serves of it.
  std::vector<TensorSpec> sources;
  std::variant<StridedView, NegatedExponential, Compute> form;
};

}  // namespace layercast
