#include "engine_side/reload/quantized_layers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine_side/model/path.h"
#include "engine_side/reload/code_names.h"
#include "engine_side/reload/layer_recipes.h"
#include "engine_side/reload/layers_by_module.h"
#include "engine_side/reload/missing_parts.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Way = QuantizedLayer::Way;

std::string NoForm(const QuantizableLayer& layer) {
  const std::string why = layer.why_no_form().empty() ? "" : ": " + layer.why_no_form();
  return "but config.json gives this layer no quantized form" + why;
}

// The first of them.
std::string LineByLine(std::span<const std::string> problems) {
  constexpr std::size_t kMost = 20;
  std::string lines;
  for (std::size_t i = 0; i < std::min(problems.size(), kMost); ++i) lines += "\n  " + problems[i];
  if (problems.size() > kMost) lines += "\n  and " + std::to_string(problems.size() - kMost) + " more";
  return lines;
}

// The module whose weight is quantized as one, of which the weight `name` is a part: the whole layer, or, of experts,
// gate and up of each.
std::string FusedIn(const Resolution& to, std::string_view name) {
  if (dynamic_cast<const FusedMoE*>(to.owner) == nullptr || to.pieces.empty()) return to.owner_path;
  if (name.ends_with(kWeightSuffix)) name.remove_suffix(kWeightSuffix.size());
  return JoinPath(ParentPath(name), to.pieces.front().shard_id == "w2" ? "down_proj" : "gate_up_proj");
}

// Gathers the parts of each layer.
class LayerFinder {
 public:
  LayerFinder(Module& model, std::span<const TensorSpec> specs) : model_(model), specs_(specs) {
    for (std::uint32_t i = 0; i < specs.size(); ++i) index_of_.emplace(specs[i].name, i);
  }

  std::vector<QuantizedLayer> Find() {
    for (std::uint32_t i = 0; i < specs_.size(); ++i) {
      const std::vector<TensorSpec> weights = WeightsOf(specs_[i]);
      if (!weights.empty()) CheckIsReadAsItIs(i);
      const bool taken = std::ranges::any_of(weights, [&](const TensorSpec& weight) { return AddPart(i, weight); });
      if (!taken && NamesPackedCodes(specs_[i].name)) AddUnread(specs_[i]);
    }
    for (const QuantizedLayer& layer : layers_) {
      for (const QuantizedLayer::Part& part : layer.parts) CheckIsReadAsItIs(part.scale);
    }
    CheckForms();
    CheckParts();
    CheckInputScales();
    return std::move(layers_);
  }

 private:
  // Which of its scales each code belongs to follows from where both lie.
  void CheckIsReadAsItIs(std::uint32_t tensor) const {
    const std::vector<std::string> rules = model_.transforms().Describe(specs_[tensor].name);
    if (rules.empty()) return;
    throw Error(ErrorCode::kUnsupported,
                Quote(specs_[tensor].name) + " " + Describe(specs_[tensor]) + ": " + rules.front() +
                    ": expected a tensor in full precision, got codes or scales of one that is quantized already, "
                    "which are read as they are alone");
  }

  // False: no layer takes `weight`, which these codes would be of.
  bool AddPart(std::uint32_t codes, const TensorSpec& weight) {
    const TensorSpec& spec = specs_[codes];
    Resolution to;
    try {
      to = model_.Resolve(weight);
    } catch (const Error&) {
      return false;  // the plan says what is wrong with it, and with all others
    }
    if (to.owner == nullptr) return false;
    const bool transposed = !to.pieces.empty() && to.pieces.front().order.transposed;
    const std::string& tree_name = to.tree_name.empty() ? weight.name : to.tree_name;
    std::string fused_in = FusedIn(to, tree_name);
    std::string module(ParentPath(tree_name));
    const std::string what = "layer " + to.owner_path + ": '" + spec.name + "' is " + Describe(spec);
    auto* layer = dynamic_cast<QuantizableLayer*>(model_.FindModule(to.owner_path));
    if (layer == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", but " + to.owner->class_name() + " takes weights in full precision alone");
    }
    if (!layer->quantized_form()) {
      without_form_.try_emplace(to.owner_path, what + ", " + NoForm(*layer));
      return true;
    }
    const QuantizedForm& form = *layer->quantized_form();
    if (spec.dtype != form.code_dtype()) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", but config.json says that its codes are " + std::string(Name(form.code_dtype())));
    }
    if (form.packed_bits != 0 && transposed) {
      throw Error(ErrorCode::kUnsupported, what + ", but packed integers are read of rows, not of transposed stacks");
    }
    if (form.has_zero_points && weight.shape.size() == 3) {
      throw Error(ErrorCode::kUnsupported, what + ", but zero points are read of single matrices, not of stacks");
    }
    const bool packed = NamesPackedCodes(spec.name);
    const std::string_view shard_id = to.pieces.empty() ? std::string_view() : to.pieces.front().shard_id;
    const std::vector<std::string> stacked_scales = ScaleNamesOfStack(weight, shard_id, form);
    const bool scale_is_of_stack =
        !IsThere(ScaleNames(weight.name, form)) && dynamic_cast<const FusedMoE*>(to.owner) && IsThere(stacked_scales);
    const std::uint32_t scale =
        FindTensor(what, "scales", scale_is_of_stack ? stacked_scales : ScaleNames(weight.name, form));
    const std::uint32_t global_scale =
        form.has_global_scale ? FindTensor(what, "scales", GlobalScaleNames(weight.name, form, packed)) : 0;
    const std::uint32_t zero_point =
        form.has_zero_points ? FindTensor(what, "zero points", {ZeroPointName(weight.name)}) : 0;
    const auto [entry, is_new] = layer_of_.try_emplace(layer, layers_.size());
    if (is_new) layers_.push_back({.layer = layer, .path = std::move(to.owner_path), .parts = {}});
    QuantizedLayer& parts_of = layers_[entry->second];
    parts_of.parts.push_back({.weight = codes,
                              .scale = scale,
                              .transposed = transposed,
                              .shard_id = shard_id,
                              .fused_in = std::move(fused_in),
                              .name = weight.name,
                              .module = std::move(module),
                              .global_scale = global_scale,
                              .zero_point = zero_point,
                              .scale_is_of_stack = scale_is_of_stack,
                              .packed = packed});
    if (layer->holds_input_scales() && !to.pieces.empty()) {
      const std::string of_part = InputScaleNameOf(weight.name, packed);
      AddInputScale(parts_of, {layer->InputScaleName(to.pieces.front().parameter), {}, packed}, of_part);
    }
    return true;
  }

  // Packed as no form that is read packs them: config.json says why. What else is wrong is the plan's to say.
  void AddUnread(const TensorSpec& codes) {
    if (!by_module_) by_module_.emplace(model_);
    const auto* found = by_module_->Find(std::string(ParentPath(codes.name)));
    if (found == nullptr || found->layer->quantized_form() || found->layer->why_no_form().empty()) return;
    without_form_.try_emplace(found->path, "layer " + found->path + ": '" + codes.name + "' is " + Describe(codes) +
                                               ", " + NoForm(*found->layer));
  }

  bool IsThere(const std::vector<std::string>& names) const {
    return std::ranges::any_of(names, [&](const std::string& name) { return index_of_.contains(name); });
  }

  // The first of `names` that is there.
  std::uint32_t FindTensor(const std::string& what, const std::string& kind,
                           const std::vector<std::string>& names) const {
    const auto there = std::ranges::find_if(names, [&](const std::string& name) { return index_of_.contains(name); });
    if (there != names.end()) return index_of_.at(*there);
    throw Error(ErrorCode::kInvalidArgument, what + ", and its " + kind + ", '" + names.front() + "', are missing");
  }

  // A layer without any is the plan's to refuse: they may come under the layer's own name.
  void AddInputScale(QuantizedLayer& layer, QuantizedLayer::InputScale of_layer, const std::string& of_part) {
    const std::string name = of_layer.name;
    auto scale = std::ranges::find(layer.input_scales, name, &QuantizedLayer::InputScale::name);
    if (scale == layer.input_scales.end()) scale = layer.input_scales.insert(scale, std::move(of_layer));
    const auto found = index_of_.find(of_part);
    if (found != index_of_.end()) {
      scale->parts.push_back(found->second);
    } else {
      without_input_scale_.try_emplace(JoinPath(layer.path, name), of_part);
    }
  }

  void CheckForms() const {
    if (without_form_.empty()) return;
    std::vector<std::string> problems;
    for (const auto& [path, problem] : without_form_) problems.push_back(problem);
    throw Error(ErrorCode::kInvalidArgument,
                "these layers are codes that nothing says how to read:" + LineByLine(problems));
  }

  // Of what is to have one scale, which needs all parts.
  void CheckParts() const {
    std::vector<std::string> problems;
    for (const QuantizedLayer& layer : layers_) {
      if (!layer.layer->quantized_form()->has_number()) continue;
      std::ranges::move(MissingParts(layer, specs_, index_of_), std::back_inserter(problems));
    }
    if (problems.empty()) return;
    throw Error(ErrorCode::kInvalidArgument, "parts of these layers are missing:" + LineByLine(problems));
  }

  void CheckInputScales() {
    for (QuantizedLayer& layer : layers_) {
      std::erase_if(layer.input_scales, [](const auto& scale) { return scale.parts.empty(); });
      for (const QuantizedLayer::InputScale& scale : layer.input_scales) {
        const auto missing = without_input_scale_.find(JoinPath(layer.path, scale.name));
        if (missing == without_input_scale_.end()) continue;
        throw Error(ErrorCode::kInvalidArgument, "layer " + layer.path + ": '" + specs_[scale.parts.front()].name +
                                                     "' is there, and '" + missing->second + "' is missing");
      }
    }
  }

  Module& model_;
  const std::span<const TensorSpec> specs_;
  std::unordered_map<std::string_view, std::uint32_t> index_of_;
  std::optional<LayersByModule> by_module_;  // made when asked for
  std::unordered_map<const QuantizableLayer*, std::size_t> layer_of_;
  std::vector<QuantizedLayer> layers_;
  std::map<std::string, std::string> without_form_;         // a layer that is codes all the same -> what is wrong
  std::map<std::string, std::string> without_input_scale_;  // what a layer would have -> a part's that is missing
};

std::string KindOf(const QuantizedForm& form) {
  if (form.packed_bits != 0) return std::to_string(form.packed_bits) + "-bit integers";
  if (!form.recipe().empty()) return std::string(form.recipe());
  std::string blocks = "blocks of " + std::to_string(form.block_rows) + " x " + std::to_string(form.block_cols);
  if (form.codes != DType::kI8) return blocks;
  return form.has_zero_points ? "integers with zero points" : "integers in " + blocks;
}

// Empty: its codes and scales are what the recipe makes.
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
                  "\na checkpoint on disk can be dequantized and quantized anew, if that is asked for (requantize)");
}

}  // namespace

void TakeInFullPrecision(Module& model) {
  if (auto* layer = dynamic_cast<QuantizableLayer*>(&model)) layer->TakeQuantized(false);
  for (const auto& [name, child] : model.children()) TakeInFullPrecision(*child);
}

QuantizedTensors TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs,
                                     const QuantizationConfig& quantization) {
  TakeInFullPrecision(model);
  QuantizedTensors found{LayerFinder(model, specs).Find(), FindPackedExperts(model, specs)};
  std::vector<std::string> problems;
  for (QuantizedLayer& layer : found.layers) {
    const std::string why = WhyNotAsTheyAre(*layer.layer, quantization);
    if (why.empty()) continue;
    problems.push_back("layer " + layer.path + ": " + why);
    layer.way = Way::kDequantize;
  }
  for (PackedExperts& experts : found.experts) {
    const std::string why = experts.layer->quantized_form() ? WhyNotAsTheyAre(*experts.layer, quantization)
                                                            : "got codes of mxfp4, " + NoForm(*experts.layer);
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
