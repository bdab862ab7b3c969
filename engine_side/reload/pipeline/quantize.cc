#include "engine_side/reload/pipeline/quantize.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/model/tree/reciprocals.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/work/check_scales.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "src/tensor/kernels/scan.h"

namespace layercast {
namespace {

// A parameter that no recipe applies to is copied as a single matrix, whatever its shape.
MatrixStack StackOf(const PlannedParameter& parameter) {
  if (parameter.quantize) return MatrixStack::Of(parameter.spec.shape);
  const MatrixView whole = AsMatrix(parameter.spec, nullptr);
  return {1, whole.rows, whole.cols};
}

}  // namespace

QuantizeStage::QuantizeStage(const LoadPlan& plan, const Manifest& manifest, const KernelLayout& layout,
                             const LayerRecipes& recipes, const AmaxTable& amax, const LayerSink& sink, StageWork& work)
    : plan_(plan),
      manifest_(manifest),
      layout_(layout),
      recipes_(recipes),
      copy_(MakeRecipe("none")),
      amax_(amax),
      sink_(sink),
      work_(work) {}

std::span<const KernelTensorView> QuantizeStage::OutputsOf(std::uint32_t parameter, std::int64_t matrix) {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  outputs_.clear();
  for (const KernelTensor& tensor : layout_.TensorsOf(parameter)) {
    std::byte* const memory = sink_.BytesOf(tensor).data();
    if (planned.quantize) {
      outputs_.push_back(OfMatrix(matrix, planned.spec.shape, tensor.spec, memory));
    } else {
      const MatrixStack whole = StackOf(planned);
      outputs_.push_back({whole.rows, whole.cols, memory});
    }
  }
  return outputs_;
}

// The magnitudes that the recipe asks for; `rows` holds those by row. A rank that holds a part of a weight must not
// compute them from its part: its scale would differ from the other ranks'.
AmaxInput QuantizeStage::AmaxOf(std::uint32_t parameter, std::int64_t matrix, std::vector<float>& rows) const {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const AmaxNeed need = planned.quantize ? recipes_.Of(planned).Needs(planned.shard_axis) : AmaxNeed::kNone;
  AmaxInput amax;
  try {
    if (need == AmaxNeed::kTensor) amax.tensor = amax_.OfMatrix(parameter, matrix);
    if (need == AmaxNeed::kRows) amax.rows = rows = amax_.RowsOfMatrix(parameter, matrix);
  } catch (const Error&) {
    work_.EndLayer([] {});  // if the cast has found the value here, that says where it is, and is the better error
    work_.Finish();
    throw;
  }
  const bool came = need == AmaxNeed::kNone || amax.tensor >= 0 || !amax.rows.empty() || StackOf(planned).rows == 0;
  if (came || planned.shard_axis == ShardAxis::kNone) return amax;
  throw Error(ErrorCode::kInvalidArgument, PlacedMatrix{plan_, manifest_, parameter, matrix}.ToString() +
                                               ": expected the largest magnitude of the whole weight" +
                                               (need == AmaxNeed::kRows ? ", by row" : "") +
                                               ", which did not come with it");
}

void QuantizeStage::Run(std::uint32_t parameter, const std::byte* values) {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const MatrixStack stack = StackOf(planned);
  const MatrixView all = AsMatrix(planned.spec, values);
  if (all.rows == 0 && stack.rows != 0) return;                    // rows of no elements
  for (std::int64_t matrix = 0; matrix < stack.count; ++matrix) {  // without rows it has scales all the same
    RunMatrix(parameter, matrix, RowsOf(all, matrix * stack.rows, stack.rows));
  }
}

void QuantizeStage::RunMatrix(std::uint32_t parameter, std::int64_t matrix, const MatrixView& values) {
  std::vector<float> row_amax;
  const AmaxInput amax = AmaxOf(parameter, matrix, row_amax);
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const Recipe& recipe = planned.quantize ? recipes_.Of(planned) : *copy_;
  work_.Quantize(recipe, values, amax, OutputsOf(parameter, matrix), {plan_, manifest_, parameter, matrix});
}

void QuantizeStage::RunArrived(std::uint32_t parameter, std::int64_t matrix, const MatrixView& rows,
                               std::int64_t first_row) {
  std::vector<float> row_amax;
  const AmaxInput amax = AmaxOf(parameter, matrix, row_amax);
  work_.QuantizeArrived(recipes_.Of(plan_.parameters()[parameter]), rows, first_row, amax, OutputsOf(parameter, matrix),
                        {plan_, manifest_, parameter, matrix});
}

void QuantizeStage::CheckStored(const PlannedLayer& layer) const {
  for (std::uint32_t i = layer.first_parameter; i < layer.first_parameter + layer.num_parameters; ++i) {
    const PlannedParameter& planned = plan_.parameters()[i];
    if (planned.quantize) continue;
    work_.CheckStored(planned.spec, sink_.BytesOf(layout_.TensorsOf(i).front()), {plan_, manifest_, i, 0});
  }
}

void QuantizeStage::CheckExponents(const PlannedLayer& layer) const {
  for (std::uint32_t i = layer.first_parameter; i < layer.first_parameter + layer.num_parameters; ++i) {
    const PlannedParameter& planned = plan_.parameters()[i];
    if (planned.quantize || planned.spec.dtype != DType::kU8 || !planned.spec.name.ends_with("_scale")) continue;
    work_.CheckExponents(sink_.BytesOf(layout_.TensorsOf(i).front()), {plan_, manifest_, i, 0});
  }
}

std::string QuantizeStage::WordsFor(std::uint32_t parameter, const TensorSpec& tensor) const {
  return "layer " + plan_.layers()[plan_.parameters()[parameter].layer].path + ": '" + tensor.name + "': ";
}

std::vector<float> QuantizeStage::ReciprocalsOf(const Placement& placement, const Manifest& manifest,
                                                const RegionView& divisors) const {
  std::vector<float> values;
  work_.Read(divisors, [&](const RegionView& view) {
    try {
      for (std::size_t row = 0; row < view.rows; ++row) {
        std::ranges::copy(Reciprocals(view.row(row), view.row_bytes / sizeof(float)), std::back_inserter(values));
      }
    } catch (const Error& error) {
      throw Error(error.code(), WordsFor(placement.parameter, manifest.entry(placement.tensor).spec) + error.what());
    }
  });
  work_.AwaitReads();
  return values;
}

void QuantizeStage::CheckSign(std::uint32_t parameter, const TensorSpec& tensor, const RegionView& scales) const {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const std::size_t count = scales.row_bytes * 8 / static_cast<std::size_t>(BitsPerElement(tensor.dtype));
  for (std::size_t row = 0; row < scales.rows; ++row) {
    CheckScales(tensor.dtype, scales.row(row), count, planned.sign, plan_.layers()[planned.layer].path, tensor.name);
  }
}

}  // namespace layercast
