#include "engine_side/reload/quantize.h"

#include <cmath>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/tensor/cast.h"

namespace layercast {

MatrixView AsMatrix(const TensorSpec& spec, const std::byte* data) {
  const std::int64_t cols = spec.shape.empty() ? 1 : spec.shape.back();
  const std::int64_t elements = spec.num_elements();
  return {.dtype = spec.dtype,
          .data = data,
          .rows = cols == 0 ? 0 : elements / cols,
          .cols = cols,
          .row_stride = cols * BitsPerElement(spec.dtype) / 8};
}

QuantizeStage::QuantizeStage(const LoadPlan& plan, const KernelLayout& layout, const Recipe& recipe,
                             const AmaxTable& amax, const LayerSink& sink, WorkerPool& pool)
    : plan_(plan), layout_(layout), recipe_(recipe), copy_(MakeRecipe("none")), amax_(amax), sink_(sink), pool_(pool) {}

std::vector<KernelTensorView> QuantizeStage::OutputsOf(std::uint32_t parameter) const {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const std::size_t path = plan_.layers()[planned.layer].path.size() + 1;  // and its dot
  std::vector<KernelTensorView> outputs;
  for (const KernelTensor& tensor : layout_.TensorsOf(parameter)) {
    Shape shape = tensor.spec.shape;
    if (!planned.quantize) {  // whatever its shape, copied as the matrix that it is handed over as
      const MatrixView matrix = AsMatrix(tensor.spec, nullptr);
      shape = {matrix.rows, matrix.cols};
    }
    outputs.push_back(
        {{tensor.spec.name.substr(path), tensor.spec.dtype, std::move(shape)}, sink_.BytesOf(tensor).data()});
  }
  return outputs;
}

// What the recipe asks for, with `rows` to live in. A rank that holds a part of a weight must not look for itself: its
// scale would not be the other ranks'.
AmaxInput QuantizeStage::AmaxOf(std::uint32_t parameter, const Recipe& recipe, std::vector<float>& rows) const {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const AmaxNeed need = recipe.Needs(planned.shard_axis);
  AmaxInput amax;
  if (need == AmaxNeed::kTensor) amax.tensor = amax_.OfParameter(parameter);
  if (need == AmaxNeed::kRows) amax.rows = rows = amax_.RowsOfParameter(parameter);
  const bool came = need == AmaxNeed::kNone || amax.tensor >= 0 || !amax.rows.empty() || planned.spec.shape[0] == 0;
  if (came || planned.shard_axis == ShardAxis::kNone) return amax;
  throw Error(ErrorCode::kInvalidArgument, "expected the largest magnitude of the whole weight" +
                                               std::string(need == AmaxNeed::kRows ? ", by row" : "") +
                                               ", which did not come with it");
}

void QuantizeStage::Run(std::uint32_t parameter, const MatrixView& rows, std::int64_t first_row) {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const Recipe& recipe = planned.quantize ? recipe_ : *copy_;
  try {
    std::vector<float> row_amax;
    const AmaxInput amax = AmaxOf(parameter, recipe, row_amax);
    recipe.Quantize(rows, first_row, amax, OutputsOf(parameter), pool_);
  } catch (const Error& error) {
    throw Error(error.code(),
                "layer " + plan_.layers()[planned.layer].path + ": '" + planned.spec.name + "': " + error.what());
  }
}

void QuantizeStage::CheckFinite(std::uint32_t parameter, const TensorSpec& tensor, const RegionView& view) const {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const std::int64_t cols = static_cast<std::int64_t>(view.row_bytes) * 8 / BitsPerElement(tensor.dtype);
  const ScanResult scan = Scan({.dtype = tensor.dtype,
                                .data = view.base,
                                .rows = static_cast<std::int64_t>(view.rows),
                                .cols = cols,
                                .row_stride = static_cast<std::int64_t>(view.rows > 1 ? view.stride : view.row_bytes)},
                               pool_);
  const std::string where = "layer " + plan_.layers()[planned.layer].path + ": '" + tensor.name + "': ";
  if (scan.first_non_finite >= 0) {
    throw Error(ErrorCode::kCorrupt, where + "expected finite values, got NaN or infinity at element " +
                                         std::to_string(scan.first_non_finite) + " of what arrived");
  }
  if (tensor.dtype == planned.spec.dtype || std::isfinite(RoundTo(planned.spec.dtype, scan.amax))) return;
  throw Error(ErrorCode::kCorrupt, where + "expected values that " + std::string(Name(planned.spec.dtype)) +
                                       " can hold, got one of magnitude " + std::to_string(scan.amax));
}

}  // namespace layercast
