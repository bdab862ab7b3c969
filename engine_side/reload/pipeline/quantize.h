// Stage 4 of the pipeline. Turns a full-precision parameter into its kernel tensors, in the sink: values and scales if
// a recipe applies, the same bytes otherwise. NaN and infinity stop here, whatever let them through.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/pipeline/amax_table.h"
#include "engine_side/reload/work/stage_work.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread only.
class QuantizeStage {
 public:
  QuantizeStage(const LoadPlan& plan, const Manifest& manifest, const KernelLayout& layout, const LayerRecipes& recipes,
                const AmaxTable& amax, const LayerSink& sink, StageWork& work);

  // Quantizes a materialized parameter, all matrices of it. Throws kCorrupt, naming layer, tensor and where in it the
  // first NaN or infinity is; on a device, a later call may throw it.
  void Run(std::uint32_t parameter, const std::byte* values);
  // The same for rows [first_row, first_row + rows) of one matrix, as they arrived: a piece that the recipe's
  // granularity allows.
  void RunArrived(std::uint32_t parameter, std::int64_t matrix, const MatrixView& rows, std::int64_t first_row);

  // Where the work cannot look at what arrives: checks the layer's parameters that went to the sink unquantized.
  void CheckStored(const PlannedLayer& layer) const;
  // Checks scales, which must be in host memory. Throws kCorrupt, likewise, if one is not a value that the parameter
  // may have.
  void CheckSign(std::uint32_t parameter, const TensorSpec& tensor, const RegionView& scales) const;
  // One divided by each of the values, for a placement that stores reciprocals. Throws kCorrupt, naming layer and
  // tensor.
  std::vector<float> ReciprocalsOf(const Placement& placement, const Manifest& manifest,
                                   const RegionView& divisors) const;
  // For a layer that is in the sink: looks for NaN among exponents (e8m0) that came with their codes. No other check
  // does, because their bytes look like integers.
  void CheckExponents(const PlannedLayer& layer) const;

 private:
  std::string WordsFor(std::uint32_t parameter, const TensorSpec& tensor) const;
  void RunMatrix(std::uint32_t parameter, std::int64_t matrix, const MatrixView& values);
  AmaxInput AmaxOf(std::uint32_t parameter, std::int64_t matrix, std::vector<float>& rows) const;
  // The kernel tensors of one matrix, in the sink. Valid until the next call.
  std::span<const KernelTensorView> OutputsOf(std::uint32_t parameter, std::int64_t matrix);

  const LoadPlan& plan_;
  const Manifest& manifest_;
  const KernelLayout& layout_;
  const LayerRecipes recipes_;
  const std::unique_ptr<const Recipe> copy_;  // for parameters that are not quantized
  const AmaxTable& amax_;
  const LayerSink& sink_;
  StageWork& work_;
  std::vector<KernelTensorView> outputs_;  // what OutputsOf returned last
};

}  // namespace layercast
