// A tensor that a layer computes from its own parameters, such as MLA's W_UK_T and W_UV, or a state space's A. No
// checkpoint holds it, and it is served like any other. Used by layers (Module::AddDerived). Value.
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
  // -exp(x) in fp32 of each element x of the one source, which has the same shape. It is defined bit for bit: x is
  // taken as fp32, e^x is computed in fp64 and rounded.
  struct NegatedExponential {};
  // Any other computation. Writes all of the tensor, row-major. Its argument `sources` has the parameters' elements,
  // row-major, in the order of the member `sources`. It must be pure: the same sources give the same bytes. It is
  // called on the host: if the engine's buffers lie on a device, the sources are copied to the host and waited for.
  using Compute =
      std::function<void(std::span<const std::span<const std::byte>> sources, std::span<std::byte> derived)>;

  TensorSpec spec;  // name within its layer ("W_UV"); this rank's shape
  // The layer's parameters that it is computed from, by name: this rank's part, fused. A parameter that is served
  // quantized is dequantized to the dtype given here, so that the tensor derives from what the engine serves.
  std::vector<TensorSpec> sources;
  std::variant<StridedView, NegatedExponential, Compute> form;
};

}  // namespace layercast
