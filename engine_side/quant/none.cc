// none: the weight as it is.
#include <cstring>

#include "engine_side/quant/recipe_parts.h"
#include "src/base/check.h"

namespace layercast {
namespace {

class None final : public Recipe {
 public:
  std::string_view name() const override { return "none"; }

  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    NumBytes(dtype, {rows, cols});  // throws on a size that cannot be held
    return {{"weight", dtype, {rows, cols}}};
  }

  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }

  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& /*amax*/,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override {
    CheckPiece(*this, piece, first_row, outputs);
    CheckValues(piece, first_row, {}, pool);
    const std::int64_t row_bytes = piece.cols * BitsPerElement(piece.dtype) / 8;
    ForBands(piece, 1, pool, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t r = first; r < first + count; ++r) {
        std::memcpy(OutputRow<std::byte>(outputs[0], first_row + r, row_bytes), piece.row(r),
                    static_cast<std::size_t>(row_bytes));
      }
      return true;
    });
  }

  QuantizedWeight Read(std::span<const KernelTensorView> /*tensors*/) const override {
    LAYERCAST_CHECK(false && "a weight that is not quantized");
    return {};
  }
};

}  // namespace

std::unique_ptr<const Recipe> MakeNone() { return std::make_unique<None>(); }

}  // namespace layercast
