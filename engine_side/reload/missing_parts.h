// What is missing of fused layers that a checkpoint holds parts of alone. Used where quantized layers are found.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "layercast/tensor.h"

namespace layercast {

// A sentence for each module that `layer` has some parts of: one of them, and every tensor of the others that is not
// there. `index_of`: of the names of `specs`.
std::vector<std::string> MissingParts(const QuantizedLayer& layer, std::span<const TensorSpec> specs,
                                      const std::unordered_map<std::string_view, std::uint32_t>& index_of);

}  // namespace layercast
