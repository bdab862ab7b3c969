// The dense feed-forward block: down(act(gate(x)) * up(x)). Made by MakeBlock.
#pragma once

#include <span>
#include <string>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "layercast/model/mlp.h"

namespace layercast {

// Resource; one thread only.
class GatedMlpBlock final : public Block {
 public:
  GatedMlpBlock(const GatedMlp& mlp, const std::string& path, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;

 private:
  Collective& collective_;
  DType dtype_;
  Activation activation_;
  LinearWeights gate_up_, down_;
  Activations gate_up_out_, gated_;  // scratch
};

}  // namespace layercast
