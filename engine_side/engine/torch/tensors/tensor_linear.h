// Linear layers of the decode step, and its rounding. Used by the step and its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"
#include "layercast/model/module.h"

namespace layercast {

struct TensorContext;

// Rounds fp32 numbers to the nearest value of `type`, and keeps them as fp32; does nothing for kFloat. It is RoundTo in
// tensors.
at::Tensor Rounded(const at::Tensor& values, at::ScalarType type);

// A linear layer. Value; the weights' memory is borrowed.
class TensorLinear {
 public:
  TensorLinear(const LinearWeights& weights, const at::Device& device, at::ScalarType type);
  // The layer's output for each row of x, [n, rows], bias included, summed in fp32 and rounded.
  at::Tensor Apply(const at::Tensor& x) const;
  std::int64_t cols() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  std::optional<WeightTensor> bias_;
  at::ScalarType type_;
};

// The linear layer that is the child `name` of `module`, which is at `path` in the tree.
TensorLinear ChildLinear(const Module& module, const char* name, const std::string& path, const TensorContext& context);

}  // namespace layercast
