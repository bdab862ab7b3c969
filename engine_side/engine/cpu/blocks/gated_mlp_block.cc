#include "engine_side/engine/cpu/blocks/gated_mlp_block.h"

#include <algorithm>

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

GatedMlpBlock::GatedMlpBlock(const GatedMlp& mlp, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      activation_(ActivationOf(mlp.hidden_act())),
      gate_up_(context.weights.Linear(*mlp.FindChild("gate_up_proj"), path + ".gate_up_proj")),
      down_(context.weights.Linear(*mlp.FindChild("down_proj"), path + ".down_proj")) {}

void GatedMlpBlock::Forward(std::span<const TokenRow> /*rows*/, const Activations& in, Activations& out) {
  ColumnParallel(in, gate_up_, dtype_, gate_up_out_);
  const std::size_t width = down_.weight.cols;
  gated_.Reset(in.rows(), width);
  for (std::size_t i = 0; i < in.rows(); ++i) {
    const std::span<const float> gate_up = gate_up_out_[i];
    std::ranges::copy(gate_up.first(width), gated_.row(i));
    GateMultiply(activation_, gated_[i], gate_up.last(width), dtype_);
  }
  RowParallel(gated_, down_, dtype_, collective_, out);
}

}  // namespace layercast
