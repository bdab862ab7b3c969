// The feed-forward block without a gate: down(act(up(x))). Made by MakeBlock.
#pragma once

#include <span>
#include <string>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "layercast/model/mlp.h"

namespace layercast {

// Resource; one thread only.
class MlpBlock final : public Block {
 public:
  MlpBlock(const Mlp& mlp, const std::string& path, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;

 private:
  Collective& collective_;
  DType dtype_;
  Activation activation_;
  LinearWeights up_, down_;
  Activations up_out_;  // scratch
};

}  // namespace layercast
