// LinearLayer: the names of a linear layer's parameters.
#include <utility>

#include "layercast/model/linear.h"

namespace layercast {

void LinearLayer::AddBias(std::int64_t rows, ShardAxis axis) {
  AddParameter({{"bias", dtype(), {rows}}, axis, false, {}});
}

std::uint32_t LinearLayer::IndexOf(std::string_view name) const {
  const bool is_scale = takes_quantized() && name == quantized_form()->checkpoint_scale;
  return ParameterIndex(is_scale ? quantized_form()->kernel_scale() : name);
}

std::string_view LinearLayer::CheckpointNameOf(std::uint32_t index) const {
  return IsScale(index) ? quantized_form()->checkpoint_scale : parameters()[index].spec.name;
}

}  // namespace layercast
