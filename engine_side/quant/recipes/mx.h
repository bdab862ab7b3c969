// What the recipes with one power of two for each 32 columns of a row (OCP microscaling) have in common: everything but
// their arithmetic. Used by mxfp8.cc and mxfp4.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine_side/quant/recipe.h"
#include "engine_side/quant/scales.h"

namespace layercast {

// Immutable; thread-safe.
class Mx final : public Recipe {
 public:
  using Blocks = bool (*)(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values);

  // `elements` is f8_e4m3, or f4, of which two share a byte (u8).
  Mx(std::string_view name, DType elements, Blocks blocks) : name_(name), elements_(elements), blocks_(blocks) {}

  std::string_view name() const override { return name_; }
  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  AmaxNeed Needs(ShardAxis /*axis*/) const override { return AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }
  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override;
  CodeFormat format() const override {
    return {.elements = elements_, .scales = DType::kF8E8M0, .block_rows = 1, .block_cols = kMxBlock};
  }

 private:
  const std::string_view name_;
  const DType elements_;
  const Blocks blocks_;
};

}  // namespace layercast
