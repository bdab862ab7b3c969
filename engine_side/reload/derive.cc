#include "engine_side/reload/derive.h"

#include <algorithm>
#include <vector>

#include "engine_side/model/path.h"
#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/quantize.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/scan.h"

namespace layercast {

void DeriveStage::Run(const PlannedLayer& layer) const {
  const std::span<const KernelTensor> derived = layout_.DerivedOf(layer);
  if (derived.empty()) return;
  HostTensors host{layout_.TensorsOf(layer), {}};
  std::vector<std::span<std::byte>> in_sink;
  for (const KernelTensor& tensor : host.tensors) in_sink.push_back(sink_.BytesOf(tensor));
  Buffer copies;
  host.bytes = work_.ReadBack(in_sink, copies);
  for (std::size_t i = 0; i < derived.size(); ++i) {
    const std::span<std::byte> bytes = host.BytesOf(derived[i].spec.name);
    derivation_.Compute(layer, layer.derived[i], host, bytes);
    CheckFinite(layer, derived[i], bytes.data());
    work_.PutBack(bytes, sink_.BytesOf(derived[i]));
  }
}

void Derivation::Compute(const PlannedLayer& layer, const DerivedTensor& derived, const HostTensors& host,
                         std::span<std::byte> bytes) const {
  std::vector<Buffer> memory(derived.sources.size());
  std::vector<std::span<const std::byte>> sources;
  for (std::size_t s = 0; s < memory.size(); ++s) {
    sources.push_back(ReadSource(layer, derived.sources[s], host, memory[s]));
  }
  derived.compute(sources, bytes);
}

std::span<const std::byte> Derivation::ReadSource(const PlannedLayer& layer, const TensorSpec& source,
                                                  const HostTensors& host, Buffer& memory) const {
  const TensorSpec whole{JoinPath(layer.path, source.name), source.dtype, source.shape};
  const auto is_whole = [&](const KernelTensor& tensor) { return tensor.spec == whole; };
  if (std::ranges::any_of(host.tensors, is_whole)) return host.BytesOf(whole.name);

  const Recipe& recipe = RecipeOf(layer, whole.name);
  const std::vector<TensorSpec> specs = KernelTensorsOf(whole, recipe);
  memory = Buffer(memory_, static_cast<std::size_t>(whole.num_bytes()));
  const MatrixStack stack = MatrixStack::Of(whole.shape);
  const std::int64_t matrix_bytes = NumBytes(whole.dtype, {stack.rows, stack.cols});
  for (std::int64_t i = 0; i < stack.count; ++i) {
    std::vector<KernelTensorView> tensors;
    for (const TensorSpec& spec : specs) {
      tensors.push_back(OfMatrix(i, whole.shape, spec, host.BytesOf(spec.name).data()));
    }
    Dequantize(recipe.Read(tensors), whole.dtype, memory.data() + i * matrix_bytes, pool_);
  }
  return memory.span();
}

const Recipe& Derivation::RecipeOf(const PlannedLayer& layer, const std::string& weight) const {
  const std::span<const PlannedParameter> parameters = plan_.ParametersOf(layer);
  const auto found = std::ranges::find(parameters, weight, [](const auto& parameter) { return parameter.spec.name; });
  LAYERCAST_CHECK(found != parameters.end());
  return recipes_.Of(*found);
}

std::span<std::byte> HostTensors::BytesOf(const std::string& name) const {
  const auto found = std::ranges::find(tensors, name, [](const KernelTensor& tensor) { return tensor.spec.name; });
  LAYERCAST_CHECK(found != tensors.end());
  return bytes[static_cast<std::size_t>(found - tensors.begin())];
}

void DeriveStage::CheckFinite(const PlannedLayer& layer, const KernelTensor& tensor, const std::byte* bytes) const {
  const ScanResult scan = Scan(AsMatrix(tensor.spec, bytes), pool_);
  if (scan.first_non_finite < 0) return;
  throw Error(ErrorCode::kCorrupt, "layer " + layer.path + ": '" + tensor.spec.name +
                                       "', which derives from its parameters, expected finite values, got NaN or "
                                       "infinity at element " +
                                       std::to_string(scan.first_non_finite));
}

}  // namespace layercast
