// mxfp4: one power of two for each 32 columns of a row, the smallest that is at least amax_block / 6.
//   q = cvt_e2m1(w / s); s is stored as its exponent's byte (E8M0)
//
// Two values share a byte, the even column's in the low half, as in nvfp4: u8 [rows, cols / 2].
#include <algorithm>
#include <utility>

#include "engine_side/quant/kernels.h"
#include "engine_side/quant/recipe_parts.h"
#include "engine_side/quant/scales.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

class Mxfp4 final : public Recipe {
 public:
  std::string_view name() const override { return "mxfp4"; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    CheckSource(name(), dtype, rows, cols);
    CheckWholeBlocks(name(), cols, kMxfp4Block);
    return {{"weight", DType::kU8, {rows, cols / 2}}, {"weight_scale", DType::kU8, {rows, cols / kMxfp4Block}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& /*amax*/,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs);
    const std::int64_t row_bytes = piece.cols / 2;
    const std::int64_t blocks = piece.cols / kMxfp4Block;
    auto* values = OutputRow<std::uint8_t>(outputs[0], first_row, row_bytes);
    auto* scales = OutputRow<std::uint8_t>(outputs[1], first_row, blocks);
    const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
      return Mxfp4Blocks(RowsOf(piece, first, count), scales + first * blocks, values + first * row_bytes);
    });
    if (!good) ThrowWrongValue(piece, first_row, {}, pool);
  }

  QuantizedWeight Read(std::span<const KernelTensorView> tensors) const override {
    const auto* exponents = OutputRow<std::uint8_t>(tensors[1], 0, 0);
    std::vector<float> scales(static_cast<std::size_t>(tensors[1].spec.num_elements()));
    std::transform(exponents, exponents + scales.size(), scales.begin(),
                   [](std::uint8_t exponent) { return GetValueTables().f8_e8m0[exponent]; });
    return WithScales(tensors[0], DType::kF4, std::move(scales), {1, kMxfp4Block});
  }
};

}  // namespace

std::unique_ptr<const Recipe> MakeMxfp4() { return std::make_unique<Mxfp4>(); }

}  // namespace layercast
