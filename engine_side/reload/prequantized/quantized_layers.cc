#include "engine_side/reload/prequantized/quantized_layers.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/prequantized/find_quantized_layers.h"
#include "layercast/error.h"

namespace layercast {
namespace {

using Way = QuantizedLayer::Way;

std::string KindOf(const QuantizedForm& form) {
  if (form.packed_bits != 0) return std::to_string(form.packed_bits) + "-bit integers";
  if (!form.recipe().empty()) return std::string(form.recipe());
  std::string blocks = "blocks of " + std::to_string(form.block_rows) + " x " + std::to_string(form.block_cols);
  if (form.codes != DType::kI8) return blocks;
  return form.has_zero_points ? "integers with zero points" : "integers in " + blocks;
}

// Says why a layer cannot be served as it is. Empty if its codes and scales are what the recipe makes.
std::string WhyNotAsTheyAre(const QuantizableLayer& layer, const QuantizationConfig& quantization) {
  const QuantizedForm& form = *layer.quantized_form();
  const std::string_view recipe = RecipeOf(&form, quantization.recipe);
  if (form.recipe() != recipe) {
    return "expected weights for " + std::string(recipe) + ", got codes of " + KindOf(form);
  }
  if (quantization.power_of_two_scales && !form.power_of_two) {
    return "expected scales that are powers of two, and config.json does not say that these are";
  }
  return layer.WhyNotSliced();
}

[[noreturn]] void RefuseAll(const std::vector<std::string>& problems) {
  throw Error(ErrorCode::kInvalidArgument,
              "these layers are quantized already and cannot be served as they are:" + LineByLine(problems) +
                  "\n  a checkpoint on disk can be dequantized and quantized anew, if that is asked for (requantize)");
}

}  // namespace

void TakeInFullPrecision(Module& model) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&model)) layer->TakeQuantized(false);
  for (const auto& [name, child] : model.children()) TakeInFullPrecision(*child);
}

QuantizedTensors TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs,
                                     const QuantizationConfig& quantization) {
  TakeInFullPrecision(model);
  QuantizedTensors found{FindQuantizedLayers(model, specs), FindPackedExperts(model, specs)};
  std::vector<std::string> problems;
  for (QuantizedLayer& layer : found.layers) {
    const std::string why = WhyNotAsTheyAre(*layer.layer, quantization);
    if (why.empty()) continue;
    problems.push_back("layer " + layer.path + ": " + why);
    layer.way = Way::kDequantize;
  }
  for (PackedExperts& experts : found.experts) {
    const std::string why = experts.layer->quantized_form() ? WhyNotAsTheyAre(*experts.layer, quantization)
                                                            : "got codes of mxfp4, " + WhyNoForm(*experts.layer);
    if (!why.empty()) problems.push_back("layer " + experts.path + ": '" + experts.name + "': " + why);
    experts.unpacked = !why.empty();
  }
  if (!problems.empty() && !quantization.requantize) RefuseAll(problems);
  for (const QuantizedLayer& layer : found.layers) layer.layer->TakeQuantized(layer.way != Way::kDequantize);
  for (const PackedExperts& experts : found.experts) experts.layer->TakeQuantized(!experts.unpacked);
  return found;
}

void TakeQuantizedLayersAsTheyCome(Module& model, const Manifest& manifest, QuantizationConfig quantization) {
  quantization.requantize = false;
  TakeQuantizedLayers(model, manifest.specs(), quantization);
}

}  // namespace layercast
