// fp8_per_block: one scale for each 128 x 128 block of this rank's weight, padded with zeros to whole blocks.
//   s = max(amax_block, 1e-4) / 448, rounded up to a power of two if asked for; q = cvt(w * (1/s))
#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

std::int64_t Blocks(std::int64_t elements) { return (elements + kFp8Block - 1) / kFp8Block; }

class Fp8PerBlock final : public Recipe {
 public:
  explicit Fp8PerBlock(bool power_of_two_scales) : power_of_two_scales_(power_of_two_scales) {}

  std::string_view name() const override { return "fp8_per_block"; }
  RecipeOptions options() const override { return {.power_of_two_scales = power_of_two_scales_}; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    CheckSource(name(), dtype, rows, cols);
    return {{"weight", DType::kF8E4M3, {rows, cols}}, {"weight_scale_inv", DType::kF32, {Blocks(rows), Blocks(cols)}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return kFp8Block; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& /*amax*/,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs, 2, piece.cols);
    auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, piece.cols);
    auto* scales = OutputRow<float>(outputs[1], first_row / kFp8Block, Blocks(piece.cols));
    const bool good = ForBands(piece, kFp8Block, pool, [&](std::int64_t first, std::int64_t count) {
      return Fp8Blocks(RowsOf(piece, first, count), power_of_two_scales_,
                       scales + first / kFp8Block * Blocks(piece.cols), values + first * piece.cols);
    });
    if (!good) ThrowWrongValue(piece, first_row, {}, pool);
  }

  CodeFormat format() const override { return {.block_rows = kFp8Block, .block_cols = kFp8Block}; }

 private:
  const bool power_of_two_scales_;
};

}  // namespace

std::unique_ptr<const Recipe> MakeFp8PerBlock(bool power_of_two_scales) {
  return std::make_unique<Fp8PerBlock>(power_of_two_scales);
}

}  // namespace layercast
