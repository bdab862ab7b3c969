// An RMS norm of the decode step. Used by the step and by attention.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/torch/weight_tensor.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"

namespace layercast {

struct TensorContext;

// Value; the weight's memory is borrowed.
class TensorNorm {
 public:
  // `module`: an RMSNorm. Throws kUnsupported if it is something else.
  TensorNorm(const Module& module, const std::string& path, CapturedWeights& weights, const at::Device& device,
             at::ScalarType type);
  // Over the last dimension, of size(), rounded as the norm's style says.
  at::Tensor Apply(const at::Tensor& x) const;
  std::int64_t size() const { return weight_.cols(); }

 private:
  WeightTensor weight_;
  double epsilon_;
  NormStyle style_;
  at::ScalarType type_;
};

// The child `name` of `module`, which lies at `path`.
TensorNorm ChildNorm(const Module& module, const std::string& name, const std::string& path,
                     const TensorContext& context);
// ... where it has one.
std::optional<TensorNorm> FindChildNorm(const Module& module, const std::string& name, const std::string& path,
                                        const TensorContext& context);

}  // namespace layercast
