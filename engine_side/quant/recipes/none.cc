// none: the weight as it is, copied.
#include <cstring>

#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/recipes/recipe_row.h"
#include "src/base/check.h"
#include "src/tensor/kernel_dtypes.h"

namespace layercast {
namespace {

void CopyPlainly(const MatrixView& source, std::int64_t row_bytes, std::byte* values) {
  for (std::int64_t r = 0; r < source.rows; ++r) {
    std::memcpy(values + r * row_bytes, source.row(r), static_cast<std::size_t>(row_bytes));
  }
}

class None final : public Recipe {
 public:
  explicit None(const RecipeRow& row) : row_(row) {}

  std::string_view name() const override { return row_.name; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    NumBytes(dtype, {rows, cols});  // throws on a size that cannot be held
    return {{"weight", dtype, {rows, cols}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& /*amax*/,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs, 1, piece.cols);
    const std::int64_t row_bytes = piece.cols * BitsPerElement(piece.dtype) / 8;
    auto* values = OutputRow<std::byte>(outputs[0], first_row, row_bytes);
    const bool one_pass = IsKernelDType(piece.dtype);
    if (!one_pass) CheckValues(piece, first_row, {}, pool);
    const bool good = ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
      const MatrixView band = RowsOf(piece, first, count);
      QuantizeJob job{};
      job.source = band;
      job.values = values + first * row_bytes;
      if (one_pass) return row_.kernel(job);
      CopyPlainly(band, row_bytes, job.values);
      return true;
    });
    if (!good) ThrowWrongValue(piece, first_row, {}, pool);
  }

  CodeFormat format() const override {
    LAYERCAST_CHECK(false && "a weight that is not quantized");
    return {};
  }

 private:
  const RecipeRow& row_;
};

}  // namespace

std::unique_ptr<const Recipe> MakeNone(const RecipeRow& row, const RecipeOptions& /*options*/) {
  return std::make_unique<None>(row);
}

}  // namespace layercast
