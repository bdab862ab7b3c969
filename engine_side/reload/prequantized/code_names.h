// The names that checkpoints give to a weight's codes and their scales. Used where quantized layers are found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/quantized_form.h"
#include "layercast/tensor.h"

namespace layercast {

constexpr std::string_view kWeightSuffix = ".weight";

// Whether compressed-tensors names packed codes so: "mlp.down_proj.weight_packed".
bool NamesPackedCodes(std::string_view codes);

// The weights that the codes `spec` may stand for, in full precision. Their shapes allow for several codes in an
// element, which lie along columns or, in transposed stacks and in forms that are refused (AWQ), along rows.
std::vector<TensorSpec> WeightsOf(const TensorSpec& spec);

// The names that the scales of a weight called `name` may have, the usual name first.
std::vector<std::string> ScaleNames(const std::string& name, const QuantizedForm& form);

// The names that the stacked scales of all experts may have, beside the expert `weight`, a single matrix. transformers
// saves experts in FP8 one by one, and their scales of blocks stacked. Empty for weights whose scales cannot be so.
std::vector<std::string> ScaleNamesOfStack(const TensorSpec& weight, std::string_view shard_id,
                                           const QuantizedForm& form);

// The names that a weight's global scale may have, if the form has one. `packed` says that the codes are packed
// (NamesPackedCodes).
std::vector<std::string> GlobalScaleNames(const std::string& name, const QuantizedForm& form, bool packed);

// The name of the zero points of a matrix called `name`, if the form has them.
std::string ZeroPointName(const std::string& name);

// The names that the scale of the activations that a weight multiplies may have, the usual name first.
std::vector<std::string> InputScaleNames(const std::string& weight, bool packed);

}  // namespace layercast
