// A quantization recipe: what a full-precision weight of a layer becomes in the captured buffers. Each has a row in
// recipe_table.cc, and RECIPES.md says what each computes. Used to find out which kernel tensors a layer has, and by
// the quantize stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/quant/dequantize.h"
#include "layercast/model/parameter.h"
#include "layercast/tensor.h"
#include "src/base/threads/worker_pool.h"
#include "src/tensor/kernels/scan.h"

namespace layercast {

// Largest magnitudes from which scales are made if this rank's part of the weight is not enough. Value.
struct AmaxInput {
  float tensor = -1.0F;         // of the whole fused weight, over all ranks; negative: not given
  std::span<const float> rows;  // of this rank's rows, over all columns of all ranks; empty: not given
};

enum class AmaxNeed : std::uint8_t { kNone, kTensor, kRows };

// One kernel tensor of a matrix: contiguous, row-major host memory. Value; the memory is borrowed.
struct KernelTensorView {
  std::int64_t rows = 1, cols = 1;  // 1 and 1 if the matrix has a single number
  std::byte* data = nullptr;

  // `shape` is as Recipe::KernelTensors lists it.
  static KernelTensorView Of(std::span<const std::int64_t> shape, std::byte* data) {
    return {shape.size() == 2 ? shape[0] : 1, shape.empty() ? 1 : shape.back(), data};
  }
  std::int64_t num_elements() const { return rows * cols; }
};

struct RecipeOptions {
  bool power_of_two_scales = false;  // fp8_per_block: round each scale up to a power of two (UE8M0)
};

// Immutable; thread-safe.
class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual std::string_view name() const = 0;
  // The options that the recipe was made with, as far as they concern it.
  virtual RecipeOptions options() const { return {}; }

  // The kernel tensors that a weight [rows, cols] of `dtype` becomes on this rank, values first. Their names are
  // suffixes that replace "weight". Throws kInvalidArgument if the recipe cannot hold that shape.
  virtual std::vector<TensorSpec> KernelTensors(DType dtype, std::int64_t rows, std::int64_t cols) const = 0;

  // What Quantize needs from the manifest for a weight that is sharded over ranks along `axis`. It may be left out only
  // for a weight that is not sharded and is handed over whole: Quantize then computes it.
  virtual AmaxNeed Needs(ShardAxis axis) const = 0;

  // A piece of the weight that begins at a multiple of this many rows, and ends at one or at the last row, may be
  // quantized on its own, given what Needs asks for. The fused fast path relies on this.
  virtual std::int64_t row_granularity() const = 0;

  // Quantizes rows [first_row, first_row + piece.rows) of the weight into `outputs`, which are those of the whole
  // weight, as KernelTensors lists them. `piece` has all columns. Throws kCorrupt on NaN or infinity, with the row and
  // column in the weight, and on a magnitude above the one given. `outputs` then hold garbage.
  virtual void Quantize(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, WorkerPool& pool) const = 0;

  // How the kernel tensors hold the weight. Must not be called for `none`, which does not quantize.
  virtual CodeFormat format() const = 0;
  // The whole weight as codes and scales, as kernels read it. It borrows the memory of `tensors`, which are as
  // KernelTensors lists them.
  QuantizedWeight Read(std::span<const KernelTensorView> tensors) const;
};

}  // namespace layercast
