// The dense feed-forward blocks of the decode step. Made by MakeTensorBlock.
#pragma once

#include <string>

#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "layercast/model/mlp.h"

namespace layercast {

// down(act(gate(x)) * up(x)). Resource; one thread only.
class TensorGatedMlp final : public TensorBlock {
 public:
  TensorGatedMlp(const GatedMlp& mlp, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  at::ScalarType type_;
  Activation activation_;
  TensorLinear gate_up_, down_;
};

// down(act(up(x))). Resource; one thread only.
class TensorMlp final : public TensorBlock {
 public:
  TensorMlp(const Mlp& mlp, const std::string& path, const TensorContext& context);
  at::Tensor Forward(const StepInputs& inputs, const at::Tensor& in) override;

 private:
  at::ScalarType type_;
  Activation activation_;
  TensorLinear up_, down_;
};

}  // namespace layercast
