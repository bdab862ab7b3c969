// Layers whose weights a checkpoint or a trainer holds quantized already, as codes and scales: what is done with each.
// Used before a plan is made.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/reload/packed_experts.h"
#include "layercast/model/quantizable_layer.h"
#include "layercast/receiver.h"
#include "layercast/tensor.h"
#include "src/tensor/manifest.h"

namespace layercast {

// Value; the layer is the tree's.
struct QuantizedLayer {
  enum class Way : std::uint8_t {
    kAsTheyAre,   // codes and scales are what the recipe makes, and are cut and copied like any tensors
    kDequantize,  // back to the model's dtype, for the recipe to quantize anew
  };
  struct Part {
    std::uint32_t weight = 0, scale = 0;  // indices of the tensors
    bool transposed = false;              // experts, stacked: columns are rows of the weight
    std::string_view shard_id{};          // the first that it is; lives as long as the layer
    std::string fused_in{};               // the module that it is a part of, or is: "mlp.experts.3.gate_up_proj"
    std::string name{};                   // of the weight in full precision: "mlp.down_proj.weight"
    std::string module{};                 // what holds it, as the tree has it: "mlp.down_proj"
    std::uint32_t global_scale = 0;       // where the form has one, the index of that tensor
    std::uint32_t zero_point = 0;         // likewise
    bool scale_is_of_stack = false;       // of all experts, which come one by one: transformers' own FP8
    bool packed = false;                  // compressed-tensors' NVFP4: that number is the reciprocal of the scale
  };

  // The largest of these is the layer's.
  struct InputScale {
    std::string name;                  // of the layer's parameter
    std::vector<std::uint32_t> parts;  // indices of the tensors
    bool reciprocal = false;           // what they hold is one divided by the scale (compressed-tensors' NVFP4)
  };

  QuantizableLayer* layer = nullptr;
  std::string path;
  Way way = Way::kAsTheyAre;
  std::vector<Part> parts;
  std::vector<InputScale> input_scales{};  // where the engine has them, and the version
};

// What of a version is quantized already. Value.
struct QuantizedTensors {
  std::vector<QuantizedLayer> layers;
  std::vector<PackedExperts> experts;
};

// Finds the layers whose weights are codes (FP8, INT8, NVFP4) among `specs`, and experts in MXFP4, decides for each,
// and puts the tree into the form in which it takes them all. Every rank decides alike. Throws kInvalidArgument naming
// layer, tensor and numbers: a scale that is missing, of activations too where other parts of a layer have one, a layer
// that config.json says nothing of, and, unless `quantization.requantize`, a recipe or a cut that does not fit.
QuantizedTensors TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs,
                                     const QuantizationConfig& quantization);

// For a version that is not read from disk: nothing is made anew of its tensors, whatever `requantize` says.
void TakeQuantizedLayersAsTheyCome(Module& model, const Manifest& manifest, QuantizationConfig quantization);

// The form that a tree is built in.
void TakeInFullPrecision(Module& model);

}  // namespace layercast
