// An RMS norm of the decode step. Used by the step and by attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/torch/tensors/weight_tensor.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

struct TensorContext;

// An RMS norm. Value; the weight's memory is borrowed.
class TensorNorm {
 public:
  // `module` must be an RMSNorm: throws kUnsupported if it is something else.
  TensorNorm(const Module& module, const std::string& path, CapturedWeights& weights, const at::Device& device,
             at::ScalarType type);
  // Normalizes over the last dimension, which has size() elements, and rounds as the norm's style says.
  at::Tensor Apply(const at::Tensor& x) const;
  std::int64_t size() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  double epsilon_;
  NormStyle style_;
  at::ScalarType type_;
};

// The norm that is the child `name` of `module`, which is at `path` in the tree.
TensorNorm ChildNorm(const Module& module, const std::string& name, const std::string& path,
                     const TensorContext& context);
// ChildNorm, or nullopt if `module` has no such child.
std::optional<TensorNorm> FindChildNorm(const Module& module, const std::string& name, const std::string& path,
                                        const TensorContext& context);

}  // namespace layercast
