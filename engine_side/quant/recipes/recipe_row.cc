#include "engine_side/quant/recipes/recipe_row.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine_side/model/naming/scale_shape.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"
#include "layercast/model/quantized_form.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

class OfFormat final : public Recipe {
 public:
  OfFormat(const RecipeRow& row, const RecipeOptions& options)
      : row_(row), options_{.power_of_two_scales = row.takes_power_of_two && options.power_of_two_scales} {}

  std::string_view name() const override { return row_.name; }
  RecipeOptions options() const override { return options_; }
  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  AmaxNeed Needs(ShardAxis axis) const override;
  std::int64_t row_granularity() const override { return std::max<std::int64_t>(1, row_.format.block_rows); }
  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override;
  CodeFormat format() const override { return row_.format; }

 private:
  // Scales are made from the columns of all ranks, so one that holds only some of them needs the rows' magnitudes.
  bool OneForEachRow() const { return row_.format.block_rows == 1 && row_.format.block_cols == 0; }
  // Those of the magnitudes that came along from which scales are made, checked.
  AmaxInput Used(const MatrixView& piece, const AmaxInput& amax, std::int64_t rows, WorkerPool& pool) const;
  void CheckRows(std::span<const float> amax, std::int64_t rows) const;

  const RecipeRow& row_;
  const RecipeOptions options_;
};

std::vector<TensorSpec> OfFormat::KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const {
  const CodeFormat& format = row_.format;
  CheckSource(name(), dtype, rows, cols);
  if (format.block_rows == 1 && format.block_cols != 0) CheckWholeBlocks(name(), cols, format.block_cols);
  std::vector<TensorSpec> tensors = {row_.Codes(rows, cols), row_.Scales(rows, cols)};
  if (format.has_global_scale) tensors.push_back({std::string(QuantizedForm::kGlobalScale), DType::kF32, {1}});
  return tensors;
}

AmaxNeed OfFormat::Needs(ShardAxis axis) const {
  if (row_.whole_scale != nullptr) return AmaxNeed::kTensor;
  return OneForEachRow() && axis == ShardAxis::kCols ? AmaxNeed::kRows : AmaxNeed::kNone;
}

void OfFormat::Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, WorkerPool& pool) const {
  const CodeFormat& format = row_.format;
  CheckPiece(*this, piece, first_row, outputs, format.has_global_scale ? 3 : 2, row_.Codes(0, piece.cols).shape[1]);
  const AmaxInput used = Used(piece, amax, outputs[0].rows, pool);
  const float scale = row_.whole_scale == nullptr ? 0.0F : row_.whole_scale(used.tensor);
  const std::int64_t row_bytes = outputs[0].cols;
  const std::int64_t scale_bytes =  // of the blocks of a row of blocks
      format.block_rows == 0 ? 0 : outputs[1].cols * BitsPerElement(format.scales) / 8;
  const auto scales_of = [&](std::int64_t row) { return CeilDivide(row, row_granularity()) * scale_bytes; };
  auto* const values = OutputRow<std::byte>(outputs[0], first_row, row_bytes);
  std::byte* const scales = outputs[1].data + scales_of(first_row);
  if (row_.whole_scale != nullptr && scale == 0.0F) {
    CheckValues(piece, first_row, used, pool);
    std::fill_n(values, piece.rows * row_bytes, std::byte{0});
    std::fill_n(scales, scales_of(piece.rows), std::byte{0});
  } else {
    const bool good = ForBands(piece, row_granularity(), pool, [&](std::int64_t first, std::int64_t count) {
      std::span<const float> rows = used.rows;
      if (!rows.empty()) {
        rows = rows.subspan(static_cast<std::size_t>(first_row + first), static_cast<std::size_t>(count));
      }
      return row_.kernel({.source = RowsOf(piece, first, count),
                          .values = values + first * row_bytes,
                          .scales = scales + scales_of(first),
                          .amax = used.tensor,
                          .scale = scale,
                          .row_amax = rows,
                          .power_of_two = options_.power_of_two_scales});
    });
    if (!good) ThrowWrongValue(piece, first_row, used, pool);
  }
  if (row_.whole_scale != nullptr) *OutputRow<float>(outputs.back(), 0, 1) = scale;
}

AmaxInput OfFormat::Used(const MatrixView& piece, const AmaxInput& amax, std::int64_t rows, WorkerPool& pool) const {
  if (row_.whole_scale != nullptr) return {.tensor = TensorAmax(*this, piece, amax, rows, pool), .rows = {}};
  if (!OneForEachRow()) return {};
  CheckRows(amax.rows, rows);
  return {.tensor = -1.0F, .rows = amax.rows};
}

void OfFormat::CheckRows(std::span<const float> amax, std::int64_t rows) const {
  if (amax.empty()) return;
  if (static_cast<std::int64_t>(amax.size()) != rows) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name()) + " needs one magnitude for each of " +
                                                 std::to_string(rows) + " rows, got " + std::to_string(amax.size()));
  }
  const bool good = std::all_of(amax.begin(), amax.end(), [](float a) { return std::isfinite(a) && a >= 0.0F; });
  if (!good) throw Error(ErrorCode::kCorrupt, "a row's largest magnitude came as NaN, infinite or negative");
}

}  // namespace

TensorSpec RecipeRow::Codes(std::int64_t rows, std::int64_t cols) const {
  if (format.elements == DType::kF4) return {"weight", DType::kU8, {rows, cols / 2}};
  return {"weight", format.elements, {rows, cols}};
}

TensorSpec RecipeRow::Scales(std::int64_t rows, std::int64_t cols) const {
  return {std::string(scales), format.scales == DType::kF8E8M0 ? DType::kU8 : format.scales,
          ScaleShape(rows, cols, format.block_rows, format.block_cols)};
}

std::unique_ptr<const Recipe> MakeOfFormat(const RecipeRow& row, const RecipeOptions& options) {
  return std::make_unique<OfFormat>(row, options);
}

}  // namespace layercast
