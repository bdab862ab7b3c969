// The dense feed-forward block of the decode step: down(activation(up(x))). Made by MakeTensorBlock.
#pragma once

#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"

namespace layercast {

// Resource; one thread only.
class TensorMlp final : public TensorBlock {
 public:
  TensorMlp(const MlpDescription& description, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override { return Apply(inputs, in); }
  // Rounded as is described: the experts of a mixture are such blocks too.
  at::Tensor Apply(const StepInputs& inputs, const at::Tensor& in) const;

 private:
  MlpActivation activation_;
  at::ScalarType type_;
  TensorLinear up_, down_;
};

}  // namespace layercast
