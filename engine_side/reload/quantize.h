// Stage 4. Turns a full-precision parameter into its kernel tensors, in the sink: values and scales where a recipe
// applies, the same bytes elsewhere. NaN and infinity stop here, whatever let them through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/reload/amax_table.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_recipes.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread only.
class QuantizeStage {
 public:
  QuantizeStage(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, const AmaxTable& amax,
                const LayerSink& sink, StageWork& work, WorkerPool& pool);

  // Rows [first_row, first_row + rows) of a parameter, counted through all of its matrices: all of them, or a piece
  // that the recipe's granularity allows. Throws kCorrupt naming layer, parameter and the first NaN or infinity.
  void Run(std::uint32_t parameter, const MatrixView& rows, std::int64_t first_row);

  // For bytes that go to the sink as they are, or cast: throws kCorrupt naming layer, tensor and index within `view`
  // when they hold a NaN or infinity, or a value that becomes one in the parameter's dtype.
  void CheckFinite(std::uint32_t parameter, const TensorSpec& tensor, const RegionView& view) const;
  // For scales, which the host reads: throws kCorrupt, likewise, when one is none that the parameter may have.
  void CheckSign(std::uint32_t parameter, const TensorSpec& tensor, const RegionView& scales) const;
  // Of a placement whose values are to land as one divided by each. Throws kCorrupt, naming layer and tensor.
  std::vector<float> ReciprocalsOf(const Placement& placement, const Manifest& manifest,
                                   const RegionView& divisors) const;
  // For a layer that is in the sink: looks for NaN among exponents (e8m0) that came with their codes. Their bytes are
  // not floating point to anyone else.
  void CheckExponents(const PlannedLayer& layer) const;

 private:
  std::string WordsFor(std::uint32_t parameter, const TensorSpec& tensor) const;
  void RunMatrix(std::uint32_t parameter, std::int64_t matrix, const MatrixView& rows, std::int64_t first_row);
  AmaxInput AmaxOf(std::uint32_t parameter, std::int64_t matrix, std::vector<float>& rows) const;
  // In the sink. Until the next call.
  std::span<const KernelTensorView> OutputsOf(std::uint32_t parameter, std::int64_t matrix);

  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerRecipes recipes_;
  const std::unique_ptr<const Recipe> copy_;  // for what is not quantized
  const AmaxTable& amax_;
  const LayerSink& sink_;
  StageWork& work_;
  WorkerPool& pool_;
  std::vector<KernelTensorView> outputs_;  // of the matrix that is being written
};

// A contiguous parameter as the matrix that recipes work on: the last dimension is a row.
MatrixView AsMatrix(const TensorSpec& spec, const std::byte* data);

}  // namespace layercast
