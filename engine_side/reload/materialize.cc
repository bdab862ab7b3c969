#include "engine_side/reload/materialize.h"

#include "engine_side/model/box_runs.h"

namespace layercast {

std::uint64_t MaterializedLayer::num_bytes() const {
  std::uint64_t bytes = 0;
  for (const Buffer& parameter : parameters) bytes += parameter.size();
  return bytes;
}

MaterializedLayer Materialize(const LoadPlan& plan, const PlannedLayer& layer, MemoryResource& memory) {
  MaterializedLayer materialized;
  for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
    const PlannedParameter& parameter = plan.parameters()[layer.first_parameter + i];
    Buffer buffer(memory, static_cast<std::size_t>(parameter.spec.num_bytes()));
    for (const Box& padding : parameter.padding) ZeroBox(parameter.spec, padding, buffer.data());
    materialized.parameters.push_back(std::move(buffer));
  }
  return materialized;
}

}  // namespace layercast
