// Finds what is missing of fused layers of which a checkpoint holds only some parts. Used where quantized layers are
// found.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "layercast/tensor.h"

namespace layercast {

// One sentence for each fused module of `layer` of which only some parts are there. It names one of these, and every
// missing tensor of the others. `index_of` has the names in `specs`.
std::vector<std::string> MissingParts(const QuantizedLayer& layer, std::span<const TensorSpec> specs,
                                      const std::unordered_map<std::string_view, std::uint32_t>& index_of);

}  // namespace layercast
