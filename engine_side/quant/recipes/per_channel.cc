#include "engine_side/quant/recipes/per_channel.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"

namespace layercast {

std::vector<TensorSpec> PerChannel::KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const {
  CheckSource(name_, dtype, rows, cols);
  return {{"weight", values_, {rows, cols}}, {"weight_scale", DType::kF32, {rows, 1}}};
}

void PerChannel::Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                          std::span<const KernelTensorView> outputs, WorkerPool& pool) const {
  CheckPiece(*this, piece, first_row, outputs, 2, piece.cols);
  CheckRows(amax.rows, outputs[0].rows);
  auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, piece.cols);
  const std::span scales(OutputRow<float>(outputs[1], first_row, 1), static_cast<std::size_t>(piece.rows));
  const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
    const MatrixView band = RowsOf(piece, first, count);
    const auto size = static_cast<std::size_t>(count);
    const auto band_scales = scales.subspan(static_cast<std::size_t>(first), size);
    std::uint8_t* band_values = values + first * piece.cols;
    if (amax.rows.empty()) return kernels_.rows(band, band_scales, band_values);
    const auto given = amax.rows.subspan(static_cast<std::size_t>(first_row + first), size);
    return kernels_.rows_given(band, given, band_scales, band_values);
  });
  if (!good) ThrowWrongValue(piece, first_row, {.tensor = -1.0F, .rows = amax.rows}, pool);
}

void PerChannel::CheckRows(std::span<const float> amax, std::int64_t rows) const {
  if (amax.empty()) return;
  if (static_cast<std::int64_t>(amax.size()) != rows) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name_) + " needs one magnitude for each of " +
                                                 std::to_string(rows) + " rows, got " + std::to_string(amax.size()));
  }
  const bool good = std::all_of(amax.begin(), amax.end(), [](float a) { return std::isfinite(a) && a >= 0.0F; });
  if (!good) throw Error(ErrorCode::kCorrupt, "a row's largest magnitude came as NaN, infinite or negative");
}

}  // namespace layercast
