#include "engine_side/engine/cpu/blocks/mlp_block.h"

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

MlpBlock::MlpBlock(const Mlp& mlp, const std::string& path, const BlockContext& context)
    : collective_(context.collective),
      dtype_(context.dtype),
      activation_(ActivationOf(mlp.hidden_act())),
      up_(context.weights.Linear(*mlp.FindChild("up_proj"), path + ".up_proj")),
      down_(context.weights.Linear(*mlp.FindChild("down_proj"), path + ".down_proj")) {}

void MlpBlock::Forward(std::span<const TokenRow> /*rows*/, const Activations& in, Activations& out) {
  ColumnParallel(in, up_, dtype_, up_out_);
  for (std::size_t i = 0; i < in.rows(); ++i) Activate(activation_, up_out_[i], dtype_);
  RowParallel(up_out_, down_, dtype_, collective_, out);
}

}  // namespace layercast
