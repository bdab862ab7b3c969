// The layers of a version whose weights are codes (FP8, INT8, NVFP4, MXFP4, packed integers), with the tensors of each
// part. By names, dtypes and shapes alone: what is done with them quantized_layers.h decides.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/quantized_layers.h"

namespace layercast {

// Throws kInvalidArgument and kUnsupported naming layer and tensor: codes that config.json says nothing of, or
// otherwise than they are; scales or parts that are missing, those of activations too where other parts of a layer have
// one.
std::vector<QuantizedLayer> FindQuantizedLayers(Module& model, std::span<const TensorSpec> specs);

// The end of a sentence about a layer that comes in codes: "but config.json gives this layer no quantized form".
std::string WhyNoForm(const QuantizableLayer& layer);

// The first of `problems`, each on a line of its own.
std::string LineByLine(std::span<const std::string> problems);

}  // namespace layercast
