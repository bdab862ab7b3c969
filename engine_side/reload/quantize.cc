#include "engine_side/reload/quantize.h"

#include <string>
#include <vector>

#include "layercast/error.h"

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
                             const AmaxTable& amax, const Staging& staging, WorkerPool& pool)
    : plan_(plan),
      layout_(layout),
      recipe_(recipe),
      copy_(MakeRecipe("none")),
      amax_(amax),
      staging_(staging),
      pool_(pool) {}

void QuantizeStage::Run(std::uint32_t parameter, const MatrixView& rows, std::int64_t first_row) {
  const PlannedParameter& planned = plan_.parameters()[parameter];
  const Recipe& recipe = planned.quantize ? recipe_ : *copy_;
  const std::string path = plan_.layers()[planned.layer].path + ".";
  std::vector<KernelTensorView> outputs;
  for (const KernelTensor& tensor : layout_.TensorsOf(parameter)) {
    TensorSpec spec = tensor.spec;
    spec.name.erase(0, path.size());
    if (!planned.quantize) {  // whatever its shape, copied as the matrix that it is handed over as
      const MatrixView matrix = AsMatrix(spec, nullptr);
      spec.shape = {matrix.rows, matrix.cols};
    }
    outputs.push_back({std::move(spec), staging_.BytesOf(tensor).data()});
  }

  AmaxInput amax;
  std::vector<float> row_amax;
  switch (recipe.Needs(planned.shard_axis)) {
    case AmaxNeed::kNone: break;
    case AmaxNeed::kTensor: amax.tensor = amax_.OfParameter(parameter); break;
    case AmaxNeed::kRows:
      row_amax = amax_.RowsOfParameter(parameter);
      amax.rows = row_amax;
      break;
  }
  try {
    recipe.Quantize(rows, first_row, amax, outputs, pool_);
  } catch (const Error& error) {
    throw Error(error.code(),
                "layer " + plan_.layers()[planned.layer].path + ": '" + planned.spec.name + "': " + error.what());
  }
}

void QuantizeStage::CheckFinite(const TensorSpec& tensor, const RegionView& view) const {
  const std::int64_t cols = static_cast<std::int64_t>(view.row_bytes) * 8 / BitsPerElement(tensor.dtype);
  const ScanResult scan = Scan({.dtype = tensor.dtype,
                                .data = view.base,
                                .rows = static_cast<std::int64_t>(view.rows),
                                .cols = cols,
                                .row_stride = static_cast<std::int64_t>(view.rows > 1 ? view.stride : view.row_bytes)},
                               pool_);
  if (scan.first_non_finite < 0) return;
  throw Error(ErrorCode::kCorrupt, "'" + tensor.name + "': NaN or infinity");
}

}  // namespace layercast
