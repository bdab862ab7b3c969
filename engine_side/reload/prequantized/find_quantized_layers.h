// Finds the layers of a version whose weights are codes (FP8, INT8, NVFP4, MXFP4, packed integers), with the tensors of
// each part. It looks at names, dtypes and shapes only. What is done with the layers is decided in quantized_layers.h.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"

namespace layercast {

// Throws kInvalidArgument or kUnsupported, naming layer and tensor, for codes that config.json does not mention or
// describes otherwise, and for scales or parts that are missing. Scales of activations are missing if other parts of
// the layer have them.
std::vector<QuantizedLayer> FindQuantizedLayers(Module& model, std::span<const TensorSpec> specs);

// The end of an error's sentence about a layer that comes in codes: "but config.json gives this layer no quantized
// form".
std::string WhyNoForm(const QuantizableLayer& layer);

// The first of `problems`, each on a line of its own, and how many more there are.
std::string LineByLine(std::span<const std::string> problems);

}  // namespace layercast
