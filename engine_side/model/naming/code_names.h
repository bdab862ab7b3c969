// The names that checkpoints give to a weight's codes, to their scales and to those of activations and of the key/value
// cache: what QuantizedForm does not say itself. Used by the layers, and where checkpoints and their configuration are
// read.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/quantized_form.h"
#include "layercast/tensor.h"

namespace layercast {

inline constexpr std::string_view kWeightName =
    "weight";  // the ending of a weight's name, which names of scales replace
inline constexpr std::string_view kWeightSuffix = ".weight";
inline constexpr std::string_view kScalesOfBlocks = "weight_scale_inv";

// Scales of activations, of one weight and of all experts together. "activation_scale" is transformers' name.
inline constexpr std::string_view kInputScale = "input_scale";
inline constexpr std::array<std::string_view, 2> kInputScales = {kInputScale, "activation_scale"};
inline constexpr std::array<std::string_view, 6> kInputScalesOfExperts = {
    kInputScales[0], "gate_up_proj_input_scale",      "down_proj_input_scale",
    kInputScales[1], "gate_up_proj_activation_scale", "down_proj_activation_scale"};
inline constexpr std::string_view kInputGlobalScale = "input_global_scale";  // compressed-tensors', a reciprocal

// Scales of the keys and the values in a cache, and an older form: one for both.
inline constexpr std::string_view kKeyScale = "k_scale", kValueScale = "v_scale", kKeyValueScale = "kv_scale";

// What GPT-OSS adds to the name of a stack of experts for its codes in blocks, and for their scales.
inline constexpr std::string_view kBlocksOfStack = "_blocks", kScalesOfStack = "_scales";

// The suffixes that make the name of a stack of experts the name of a tensor of it that a single module calls `name`,
// the usual one first: "_scale_inv", "_weight_scale_inv", ".weight_scale_inv".
std::vector<std::string> SuffixesOfStack(std::string_view name);

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
