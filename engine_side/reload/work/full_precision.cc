#include "engine_side/reload/work/full_precision.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine_side/model/naming/path.h"
#include "engine_side/quant/kernel_tensors.h"
#include "src/base/check.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {

std::span<std::byte> LayerTensors::BytesOf(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, [](const KernelTensor& tensor) { return tensor.spec.name; });
  LAYERCAST_CHECK(found != tensors.end());
  return bytes[static_cast<std::size_t>(found - tensors.begin())];
}

bool LayerTensors::Has(const TensorSpec& spec) const {
  return std::ranges::any_of(tensors, [&](const KernelTensor& tensor) { return tensor.spec == spec; });
}

std::span<std::byte> FullPrecision::Of(const TensorSpec& parameter) {
  const TensorSpec whole{JoinPath(layer_.path, parameter.name), parameter.dtype, parameter.shape};
  if (tensors_.Has(whole)) return tensors_.BytesOf(whole.name);
  const auto [entry, is_first] = dequantized_.try_emplace(whole.name);
  if (is_first) {
    entry->second = BufferFor("'" + whole.name + "' in full precision", work_.layer_memory(),
                              static_cast<std::size_t>(whole.num_bytes()));
    Dequantize(whole, entry->second.data());
  }
  return entry->second.span();
}

void FullPrecision::Dequantize(const TensorSpec& whole, std::byte* values) const {
  const Recipe& recipe = RecipeOf(whole.name);
  const std::vector<TensorSpec> specs = KernelTensorsOf(whole, recipe);
  const MatrixStack stack = MatrixStack::Of(whole.shape);
  if (whole.num_elements() == 0) return;
  const std::int64_t matrix_bytes = NumBytes(whole.dtype, {stack.rows, stack.cols});
  for (std::int64_t i = 0; i < stack.count; ++i) {
    std::vector<KernelTensorView> views;
    for (const TensorSpec& spec : specs) {
      views.push_back(OfMatrix(i, whole.shape, spec, tensors_.BytesOf(spec.name).data()));
    }
    work_.Dequantize(recipe, views, whole.dtype, values + i * matrix_bytes);
  }
}

const Recipe& FullPrecision::RecipeOf(const std::string& weight) const {
  const std::span<const PlannedParameter> parameters = plan_.ParametersOf(layer_);
  const auto found = std::ranges::find(parameters, weight, [](const auto& parameter) { return parameter.spec.name; });
  LAYERCAST_CHECK(found != parameters.end());
  return recipes_.Of(*found);
}

}  // namespace layercast
