// nvfp4: two levels of scales. g = 448 * 6 / amax, with the amax of the whole fused weight over all ranks. For each 16
// columns of a row, sf = cvt_e4m3(g * (amax_block / 6)) and q = cvt_e2m1(w * (g / sf)). sf and 1/g are stored.
//
// Two values share a byte, with the even column's in the low half. They are stored as u8 [rows, cols / 2] and not as F4
// [rows, cols], because engines and checkpoints hold such weights as tensors of bytes, and so do captured buffers.
#include <algorithm>

#include "engine_side/quant/cpu/kernels.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/scales.h"

namespace layercast {
namespace {

class Nvfp4 final : public Recipe {
 public:
  std::string_view name() const override { return "nvfp4"; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    CheckSource(name(), dtype, rows, cols);
    CheckWholeBlocks(name(), cols, kNvfp4Block);
    return {{"weight", DType::kU8, {rows, cols / 2}},
            {"weight_scale", DType::kF8E4M3, {rows, cols / kNvfp4Block}},
            {"weight_scale_2", DType::kF32, {1}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kTensor; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs, 3, piece.cols / 2);
    const std::int64_t row_bytes = piece.cols / 2;
    const std::int64_t blocks = piece.cols / kNvfp4Block;
    auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, row_bytes);
    auto* scales = OutputRow<std::uint8_t>(outputs[1], first_row, blocks);
    auto* global_scale = OutputRow<float>(outputs[2], 0, 1);
    const float tensor_amax = TensorAmax(*this, piece, amax, outputs[0].rows, pool);
    const AmaxInput limit{.tensor = tensor_amax, .rows = {}};
    if (IsZeroNvfp4(tensor_amax)) {
      CheckValues(piece, first_row, limit, pool);
      std::fill_n(values, piece.rows * row_bytes, std::uint8_t{0});
      std::fill_n(scales, piece.rows * blocks, std::uint8_t{0});
      *global_scale = 0.0F;
      return;
    }
    const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
      return Nvfp4Blocks(RowsOf(piece, first, count), tensor_amax, scales + first * blocks, values + first * row_bytes);
    });
    if (!good) ThrowWrongValue(piece, first_row, limit, pool);
    *global_scale = 1.0F / Nvfp4GlobalFactor(tensor_amax);
  }

  CodeFormat format() const override {
    return {.elements = DType::kF4,
            .scales = DType::kF8E4M3,
            .block_rows = 1,
            .block_cols = kNvfp4Block,
            .has_global_scale = true};
  }
};

}  // namespace

std::unique_ptr<const Recipe> MakeNvfp4() { return std::make_unique<Nvfp4>(); }

}  // namespace layercast
