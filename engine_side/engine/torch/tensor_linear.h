// Linear layers of the decode step, and how it rounds. Used by the step and its blocks.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "engine_side/engine/linear.h"
#include "engine_side/engine/torch/weight_tensor.h"
#include "layercast/model/module.h"

namespace layercast {

struct TensorContext;

// fp32 numbers, rounded to the nearest of `type` (kFloat: left alone): RoundTo, in tensors.
at::Tensor Rounded(const at::Tensor& values, at::ScalarType type);

// Value; memory borrowed.
class TensorLinear {
 public:
  TensorLinear(const LinearWeights& weights, const at::Device& device, at::ScalarType type);
  // [n, rows]: the layer's output for each row of x, bias included, summed in fp32 and rounded.
  at::Tensor Apply(const at::Tensor& x) const;
  std::int64_t cols() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  std::optional<WeightTensor> bias_;
  at::ScalarType type_;
};

// The child `name` of `module`, which lies at `path`.
TensorLinear ChildLinear(const Module& module, const char* name, const std::string& path, const TensorContext& context);

}  // namespace layercast
