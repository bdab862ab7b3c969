#include "engine_side/model/naming/code_names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "engine_side/model/naming/path.h"

namespace layercast {
namespace {

constexpr std::string_view kPacked = "_packed";
constexpr std::int64_t kMostPerElement = 8;  // most codes in an element

// The names that a weight with packed codes of this name may have: "w13_weight" for "w13_weight_packed", and
// "gate_up_proj" for "gate_up_proj_weight_packed".
std::vector<std::string> NamesWithoutPacked(std::string_view codes) {
  codes.remove_suffix(kPacked.size());
  std::vector<std::string> names = {std::string(codes)};
  constexpr std::string_view kOfStack = "_weight";
  if (codes.ends_with(kOfStack)) names.emplace_back(codes.substr(0, codes.size() - kOfStack.size()));
  return names;
}

}  // namespace

std::vector<std::string> SuffixesOfStack(std::string_view name) {
  constexpr std::string_view kOfWeight = "weight_";
  const bool of_weight = name.starts_with(kOfWeight);
  const std::string whole(name);
  std::vector<std::string> suffixes = {"_" + (of_weight ? whole.substr(kOfWeight.size()) : whole), "." + whole};
  if (of_weight) suffixes.insert(suffixes.begin() + 1, "_" + whole);
  return suffixes;
}

bool NamesPackedCodes(std::string_view codes) { return codes.ends_with(kPacked); }

std::vector<TensorSpec> WeightsOf(const TensorSpec& spec) {
  if (spec.dtype == DType::kF8E4M3 || spec.dtype == DType::kI8) return {{spec.name, DType::kBF16, spec.shape}};
  const bool packed = NamesPackedCodes(spec.name);
  const bool stacked = spec.shape.size() == 3;
  if (!packed && (spec.dtype != DType::kU8 || (!stacked && !spec.name.ends_with(kWeightSuffix)))) return {};
  if (!stacked && spec.shape.size() != 2) return {};
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / kMostPerElement;
  if (std::ranges::max(spec.shape) > kMost) return {};
  std::vector<TensorSpec> weights;
  for (const std::string& name : packed ? NamesWithoutPacked(spec.name) : std::vector<std::string>{spec.name}) {
    for (const std::int64_t per_element : {std::int64_t{2}, std::int64_t{4}, kMostPerElement}) {
      for (const std::size_t from_end : {1U, 2U}) {
        if (from_end == 2 && packed && !stacked) continue;  // compressed-tensors packs a matrix along its columns
        TensorSpec& weight = weights.emplace_back(TensorSpec{name, DType::kBF16, spec.shape});
        weight.shape[weight.shape.size() - from_end] *= per_element;
      }
    }
  }
  return weights;
}

std::vector<std::string> ScaleNames(const std::string& name, const QuantizedForm& form) {
  if (name.ends_with(kWeightSuffix)) {
    std::vector<std::string> names = {JoinPath(ParentPath(name), form.checkpoint_scale)};
    if (!form.other_scale.empty()) names.push_back(JoinPath(ParentPath(name), form.other_scale));
    return names;
  }
  std::vector<std::string> names = form.StackedScales();
  for (std::string& suffix : names) suffix.insert(0, name);
  return names;
}

std::vector<std::string> ScaleNamesOfStack(const TensorSpec& weight, std::string_view shard_id,
                                           const QuantizedForm& form) {
  const bool of_blocks = form.scales == QuantizedForm::Scales::kBlock && form.scale_dtype == DType::kF32;
  if (!of_blocks || form.has_zero_points || weight.shape.size() != 2 || !weight.name.ends_with(kWeightSuffix))
    return {};
  const std::string_view experts = ParentPath(ParentPath(ParentPath(weight.name)));
  return ScaleNames(JoinPath(experts, shard_id == "w2" ? "down_proj" : "gate_up_proj"), form);
}

std::vector<std::string> GlobalScaleNames(const std::string& name, const QuantizedForm& form, bool packed) {
  if (name.ends_with(kWeightSuffix)) {
    return {JoinPath(ParentPath(name), packed ? QuantizedForm::kGlobalReciprocal : QuantizedForm::kGlobalScale)};
  }
  std::vector<std::string> names = packed ? form.StackedGlobalReciprocals() : form.StackedGlobalScales();
  for (std::string& suffix : names) suffix.insert(0, name);
  return names;
}

std::string ZeroPointName(const std::string& name) { return JoinPath(ParentPath(name), QuantizedForm::kZeroPoint); }

std::vector<std::string> InputScaleNames(const std::string& weight, bool packed) {
  const bool of_stack = !weight.ends_with(kWeightSuffix);
  if (packed && !of_stack) return {JoinPath(ParentPath(weight), kInputGlobalScale)};
  std::vector<std::string> names;
  for (const std::string_view name : kInputScales) {
    names.push_back(of_stack ? weight + "_" + std::string(name) : JoinPath(ParentPath(weight), name));
  }
  return names;
}

}  // namespace layercast
