#include "engine_side/engine/cpu/blocks/mlp_block.h"

#include <algorithm>
#include <utility>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

void ActivateUp(const MlpDescription& mlp, const Activations& up_out, DType dtype, Activations& out) {
  const auto& [function, gated, clamped] = mlp.activation;
  const std::size_t width = mlp.down.weight.cols;
  out.Reset(up_out.rows(), width);
  for (std::size_t i = 0; i < up_out.rows(); ++i) {
    std::ranges::copy(up_out[i].first(width), out.row(i));
    if (!gated) {
      Activate(function, out[i], dtype);
    } else if (clamped) {
      ClampedGateMultiply(static_cast<float>(clamped->alpha), static_cast<float>(clamped->limit), out[i],
                          up_out[i].last(width), dtype);
    } else {
      GateMultiply(function, out[i], up_out[i].last(width), dtype);
    }
  }
}

MlpBlock::MlpBlock(MlpDescription description, const BlockContext& context)
    : description_(std::move(description)), collective_(context.collective), dtype_(context.dtype) {}

void MlpBlock::Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) {
  const SlotGroups groups = GroupBySlot(rows);
  ColumnParallel(in, description_.up, groups, up_out_);
  ActivateUp(description_, up_out_, dtype_, activated_);
  RowParallel(activated_, description_.down, groups, collective_, out);
}

}  // namespace layercast
