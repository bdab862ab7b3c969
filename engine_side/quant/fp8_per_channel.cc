// fp8_per_channel: one scale for each output row, over the columns of all ranks.
//   s = max(amax_row / 448, 1 / (448 * 512)); q = cvt(clamp(w / s, -448, 448))
#include <algorithm>
#include <cmath>

#include "engine_side/quant/fp8_kernels.h"
#include "engine_side/quant/recipe_parts.h"
#include "layercast/error.h"

namespace layercast {
namespace {

class Fp8PerChannel final : public Recipe {
 public:
  std::string_view name() const override { return "fp8_per_channel"; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    CheckFp8Source(name(), dtype, rows, cols);
    return {{"weight", DType::kF8E4M3, {rows, cols}}, {"weight_scale", DType::kF32, {rows, 1}}};
  }

  AmaxNeed Needs(ShardAxis axis) const override { return axis == ShardAxis::kCols ? AmaxNeed::kRows : AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs);
    CheckRows(amax.rows, outputs[0].spec.shape[0]);
    auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, piece.cols);
    const std::span scales(OutputRow<float>(outputs[1], first_row, 1), static_cast<std::size_t>(piece.rows));
    const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
      const MatrixView band = RowsOf(piece, first, count);
      const auto size = static_cast<std::size_t>(count);
      const auto band_scales = scales.subspan(static_cast<std::size_t>(first), size);
      std::uint8_t* band_values = values + first * piece.cols;
      if (amax.rows.empty()) return ConvertRows(band, band_scales, band_values);
      const auto given = amax.rows.subspan(static_cast<std::size_t>(first_row + first), size);
      return ConvertRowsGiven(band, given, band_scales, band_values);
    });
    if (!good) ThrowWrongValue(piece, first_row, {.tensor = -1.0F, .rows = amax.rows}, pool);
  }

 private:
  static void CheckRows(std::span<const float> amax, std::int64_t rows) {
    if (amax.empty()) return;
    if (static_cast<std::int64_t>(amax.size()) != rows) {
      throw Error(ErrorCode::kInvalidArgument, "fp8_per_channel needs one magnitude for each of " +
                                                   std::to_string(rows) + " rows, got " + std::to_string(amax.size()));
    }
    const bool good = std::all_of(amax.begin(), amax.end(), [](float a) { return std::isfinite(a) && a >= 0.0F; });
    if (!good) throw Error(ErrorCode::kCorrupt, "a row's largest magnitude came as NaN, infinite or negative");
  }
};

}  // namespace

std::unique_ptr<const Recipe> MakeFp8PerChannel() { return std::make_unique<Fp8PerChannel>(); }

}  // namespace layercast
