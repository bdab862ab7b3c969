// fp8_per_tensor: one scale, that of the whole fused weight over all ranks.
//   s = amax / 448; q = cvt(clamp(w * (1/s), -448, 448)); a zero tensor is q = 0, s = 0
#include <algorithm>

#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

class Fp8PerTensor final : public Recipe {
 public:
  std::string_view name() const override { return "fp8_per_tensor"; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    CheckSource(name(), dtype, rows, cols);
    return {{"weight", DType::kF8E4M3, {rows, cols}}, {"weight_scale", DType::kF32, {1}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kTensor; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs, 2, piece.cols);
    const float tensor_amax = TensorAmax(*this, piece, amax, outputs[0].rows, pool);
    auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, piece.cols);
    float scale = 0.0F;
    if (IsZeroTensor(tensor_amax)) {
      CheckValues(piece, first_row, {.tensor = tensor_amax, .rows = {}}, pool);
      std::fill_n(values, piece.rows * piece.cols, std::uint8_t{0});
    } else {
      scale = TensorScale(tensor_amax);
      const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
        return Fp8WithScale(RowsOf(piece, first, count), tensor_amax, scale, values + first * piece.cols);
      });
      if (!good) ThrowWrongValue(piece, first_row, {.tensor = tensor_amax, .rows = {}}, pool);
    }
    *OutputRow<float>(outputs[1], 0, 1) = scale;
  }

  CodeFormat format() const override { return {}; }
};

}  // namespace

std::unique_ptr<const Recipe> MakeFp8PerTensor() { return std::make_unique<Fp8PerTensor>(); }

}  // namespace layercast
