#include "engine_side/reload/pipeline/materialize.h"

#include <string>
#include <utility>

#include "src/base/check.h"
#include "src/base/memory/buffer_for.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

std::size_t Aligned(std::size_t offset) { return RoundUp(offset, kMemoryAlignment); }

}  // namespace

void FillUnsupplied(const PlannedParameter& parameter, std::byte* memory, StageWork& work) {
  for (const Box& padding : parameter.padding) work.Zero(parameter.spec, padding, memory);
  if (!parameter.fallback) return;
  LAYERCAST_CHECK(parameter.spec.dtype == DType::kF32);
  const std::vector<float> values(static_cast<std::size_t>(parameter.spec.num_elements()), *parameter.fallback);
  work.Write(AsView(std::as_bytes(std::span(values))), memory);
}

std::uint64_t LayerBytes(const LoadPlan& plan, const PlannedLayer& layer) {
  std::size_t bytes = 0;
  for (const PlannedParameter& parameter : plan.ParametersOf(layer)) {
    bytes = Aligned(bytes) + static_cast<std::size_t>(parameter.spec.num_bytes());
  }
  return bytes;
}

MaterializedLayer Materialize(const LoadPlan& plan, const PlannedLayer& layer, StageWork& work) {
  const auto parameters = plan.ParametersOf(layer);
  Buffer memory = BufferFor("layer " + layer.path + " in full precision", work.layer_memory(),
                            static_cast<std::size_t>(LayerBytes(plan, layer)));
  MaterializedLayer layer_memory{std::move(memory), {}};
  layer_memory.parameters.reserve(parameters.size());
  std::size_t offset = 0;
  for (const PlannedParameter& parameter : parameters) {
    const auto size = static_cast<std::size_t>(parameter.spec.num_bytes());
    const auto at = layer_memory.parameters.emplace_back(layer_memory.memory.span().subspan(Aligned(offset), size));
    FillUnsupplied(parameter, at.data(), work);
    offset = Aligned(offset) + size;
  }
  return layer_memory;
}

}  // namespace layercast
