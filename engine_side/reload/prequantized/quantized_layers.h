// Layers whose weights a checkpoint or a trainer holds quantized already, as codes and scales. What is done with each
// of them is decided here, before a plan is made. Used by the stager and QuantizedCheckpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/reload/prequantized/packed_experts.h"
#include "layercast/model/quantizable_layer.h"
#include "layercast/receiver_options.h"
#include "layercast/tensor.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// Value; borrows the layer, which belongs to the module tree.
struct QuantizedLayer {
  enum class Way : std::uint8_t {
    kAsTheyAre,   // codes and scales are what the recipe makes, and are cut and copied like any tensors
    kDequantize,  // back to the model's dtype, for the recipe to quantize anew
  };
  struct Part {
    std::uint32_t weight = 0, scale = 0;  // indices of the tensors
    bool transposed = false;              // a stack of experts whose columns are the weight's rows
    std::string_view shard_id{};          // the first shard that it fills; lives as long as the layer
    std::string fused_in{};               // the module that is quantized as one: "mlp.experts.3.gate_up_proj"
    std::string name{};                   // of the weight in full precision: "mlp.down_proj.weight"
    std::string module{};                 // its module's name in the tree: "mlp.down_proj"
    std::uint32_t global_scale = 0;       // if the form has one: the index of its tensor
    std::uint32_t zero_point = 0;         // if the form has zero points: the index of their tensor
    bool scale_is_of_stack = false;       // one stack for experts that come one by one (transformers' FP8)
    bool packed = false;                  // compressed-tensors' NVFP4: global_scale is a reciprocal
  };

  // An activations' scale of the layer, which is the largest of its parts' scales.
  struct InputScale {
    std::string name;                  // of the layer's parameter
    std::vector<std::uint32_t> parts;  // indices of the tensors
    bool reciprocal = false;           // the tensors hold 1 / scale (compressed-tensors' NVFP4)
  };

  QuantizableLayer* layer = nullptr;
  std::string path;
  Way way = Way::kAsTheyAre;
  std::vector<Part> parts;
  std::vector<InputScale> input_scales{};  // if both the engine and the version have them
};

// The layers and experts of a version that are quantized already. Value.
struct QuantizedTensors {
  std::vector<QuantizedLayer> layers;
  std::vector<PackedExperts> experts;
};

// Finds the layers whose weights are codes (FP8, INT8, NVFP4) and the experts in MXFP4 among `specs`, decides what to
// do with each, and puts the tree into the form that takes them all. Every rank decides alike. Throws kInvalidArgument,
// naming layer, tensor and numbers, if a scale is missing (also one of activations, if other parts of the layer have
// one), if config.json does not mention a layer's codes and, unless `quantization.requantize`, if a recipe or a cut
// does not fit.
QuantizedTensors TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs,
                                     const QuantizationConfig& quantization);

// The same for a version that is not read from disk, whose tensors are never requantized, whatever `requantize` says.
void TakeQuantizedLayersAsTheyCome(Module& model, const Manifest& manifest, QuantizationConfig quantization);

// Puts the tree back into the form in which it was built, for weights in full precision.
void TakeInFullPrecision(Module& model);

}  // namespace layercast
