// What checkpoints call a weight's codes and their scales. Used where quantized layers are found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/quantized_form.h"
#include "layercast/tensor.h"

namespace layercast {

constexpr std::string_view kWeightSuffix = ".weight";

// By compressed-tensors, in NVFP4: "mlp.down_proj.weight_packed".
bool NamesPackedCodes(std::string_view codes);

// What the codes `spec` may be of, in full precision: all shapes that several codes in an element could mean. In a
// transposed stack, and in forms that are refused (AWQ), they are of rows that follow each other.
std::vector<TensorSpec> WeightsOf(const TensorSpec& spec);

// What the scales of a weight called `name` may be called, the usual name first.
std::vector<std::string> ScaleNames(const std::string& name, const QuantizedForm& form);

// What those of the stack may be called that the expert `weight`, a matrix, is of; empty where it has scales of its
// own: transformers saves experts in FP8 one by one, and their scales of blocks stacked.
std::vector<std::string> ScaleNamesOfStack(const TensorSpec& weight, std::string_view shard_id,
                                           const QuantizedForm& form);

// And its second one, where the form has it; `packed`: its codes are.
std::vector<std::string> GlobalScaleNames(const std::string& name, const QuantizedForm& form, bool packed);

// What the zero points of a matrix are called, where the form has them.
std::string ZeroPointName(const std::string& name);

// What that of its activations may be called, the usual name first.
std::vector<std::string> InputScaleNames(const std::string& weight, bool packed);

}  // namespace layercast
