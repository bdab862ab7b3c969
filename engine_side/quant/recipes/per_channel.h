// What the recipes with one scale for each output row have in common: everything but their arithmetic. A row's scale is
// made from the row's columns on all ranks, so a rank that holds only some of the columns needs the rows' largest
// magnitudes. Used by fp8_per_channel.cc and int8_per_channel.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine_side/quant/recipe.h"

namespace layercast {

struct PerChannelKernels {
  bool (*rows)(const MatrixView& source, std::span<float> scales, std::uint8_t* values);
  bool (*rows_given)(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                     std::uint8_t* values);
};

// Immutable; thread-safe.
class PerChannel final : public Recipe {
 public:
  // `values` is the type of a value, which takes a byte.
  PerChannel(std::string_view name, DType values, const PerChannelKernels& kernels)
      : name_(name), values_(values), kernels_(kernels) {}

  std::string_view name() const override { return name_; }
  std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  AmaxNeed Needs(ShardAxis axis) const override { return axis == ShardAxis::kCols ? AmaxNeed::kRows : AmaxNeed::kNone; }
  std::int64_t row_granularity() const override { return 1; }
  void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, WorkerPool& pool) const override;
  CodeFormat format() const override { return {.elements = values_, .block_rows = 1}; }

 private:
  void CheckRows(std::span<const float> amax, std::int64_t rows) const;

  const std::string_view name_;
  const DType values_;
  const PerChannelKernels kernels_;
};

}  // namespace layercast
