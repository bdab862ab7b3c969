#include "engine_side/quant/recipes/mx.h"

#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/scales.h"

namespace layercast {

std::vector<TensorSpec> Mx::KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const {
  CheckSource(name_, dtype, rows, cols);
  CheckWholeBlocks(name_, cols, kMxBlock);
  const TensorSpec values = elements_ == DType::kF4 ? TensorSpec{"weight", DType::kU8, {rows, cols / 2}}
                                                    : TensorSpec{"weight", elements_, {rows, cols}};
  return {values, {"weight_scale", DType::kU8, {rows, cols / kMxBlock}}};
}

void Mx::Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& /*amax*/,
                  std::span<const KernelTensorView> outputs, WorkerPool& pool) const {
  CheckPiece(*this, piece, first_row, outputs, 2, elements_ == DType::kF4 ? piece.cols / 2 : piece.cols);
  const std::int64_t row_bytes = outputs[0].cols;
  const std::int64_t blocks = outputs[1].cols;
  auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, row_bytes);
  auto* scales = OutputRow<std::uint8_t>(outputs[1], first_row, blocks);
  const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
    return blocks_(RowsOf(piece, first, count), scales + first * blocks, values + first * row_bytes);
  });
  if (!good) ThrowWrongValue(piece, first_row, {}, pool);
}

}  // namespace layercast
