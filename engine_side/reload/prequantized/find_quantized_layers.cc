#include "engine_side/reload/prequantized/find_quantized_layers.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/path.h"
#include "engine_side/reload/prequantized/layers_by_module.h"
#include "engine_side/reload/prequantized/missing_parts.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

bool IsTransposed(const Resolution& to) { return !to.pieces.empty() && to.pieces.front().order.transposed; }

// The module that is quantized as one and has the weight `name` as a part: the whole layer or, for experts, gate and up
// of each expert, or its down.
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
  // Refuses rules that transform the tensor: which scale a code belongs to follows from where both lie.
  void CheckIsReadAsItIs(std::uint32_t tensor) const {
    const std::vector<std::string> rules = model_.transforms().Describe(specs_[tensor].name);
    if (rules.empty()) return;
    throw Error(ErrorCode::kUnsupported,
                Quote(specs_[tensor].name) + " " + Describe(specs_[tensor]) + ": " + rules.front() +
                    ": expected a tensor in full precision, got codes or scales of one that is quantized already, "
                    "which are read as they are alone");
  }

  // Adds a part whose codes are tensor `codes` and whose weight would be `weight`. Returns false if no layer takes that
  // weight.
  bool AddPart(std::uint32_t codes, const TensorSpec& weight) {
    const std::optional<Resolution> to = Resolve(weight);
    if (!to) return false;
    const std::string what = "layer " + to->owner_path + ": '" + specs_[codes].name + "' is " + Describe(specs_[codes]);
    auto* layer = dynamic_cast<QuantizableLayer*>(model_.FindModule(to->owner_path));
    if (layer == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", but " + to->owner->class_name() + " takes weights in full precision alone");
    }
    if (!layer->quantized_form()) {
      without_form_.try_emplace(to->owner_path, what + ", " + WhyNoForm(*layer));
      return true;
    }
    CheckIsRead(*layer->quantized_form(), specs_[codes], weight, IsTransposed(*to), what);
    const auto [entry, is_new] = layer_of_.try_emplace(layer, layers_.size());
    if (is_new) layers_.push_back({.layer = layer, .path = to->owner_path, .parts = {}});
    QuantizedLayer& parts_of = layers_[entry->second];
    parts_of.parts.push_back(PartOf(*layer->quantized_form(), codes, weight, *to, what));
    if (layer->holds_input_scales() && !to->pieces.empty()) AddInputScale(parts_of, parts_of.parts.back(), *to);
    return true;
  }

  // Where the weight goes; empty if no layer loads it.
  std::optional<Resolution> Resolve(const TensorSpec& weight) const {
    try {
      Resolution to = model_.Resolve(weight);
      if (to.owner == nullptr) return std::nullopt;
      return to;
    } catch (const Error&) {
      return std::nullopt;  // the plan reports it, together with all other problems
    }
  }

  static void CheckIsRead(const QuantizedForm& form, const TensorSpec& codes, const TensorSpec& weight, bool transposed,
                          const std::string& what) {
    if (codes.dtype != form.code_dtype()) {
      throw Error(ErrorCode::kInvalidArgument,
                  what + ", but config.json says that its codes are " + std::string(Name(form.code_dtype())));
    }
    if (form.packed_bits != 0 && transposed) {
      throw Error(ErrorCode::kUnsupported, what + ", but packed integers are read of rows, not of transposed stacks");
    }
    if (form.has_zero_points && weight.shape.size() == 3) {
      throw Error(ErrorCode::kUnsupported, what + ", but zero points are read of single matrices, not of stacks");
    }
  }

  QuantizedLayer::Part PartOf(const QuantizedForm& form, std::uint32_t codes, const TensorSpec& weight,
                              const Resolution& to, const std::string& what) const {
    const std::string& tree_name = to.tree_name.empty() ? weight.name : to.tree_name;
    QuantizedLayer::Part part{.weight = codes,
                              .transposed = IsTransposed(to),
                              .shard_id = to.pieces.empty() ? std::string_view() : to.pieces.front().shard_id,
                              .fused_in = FusedIn(to, tree_name),
                              .name = weight.name,
                              .module = std::string(ParentPath(tree_name)),
                              .packed = NamesPackedCodes(specs_[codes].name)};
    const std::vector<std::string> scales = ScaleNames(weight.name, form);
    const std::vector<std::string> of_stack = ScaleNamesOfStack(weight, part.shard_id, form);
    part.scale_is_of_stack = !IsThere(scales) && dynamic_cast<const FusedMoE*>(to.owner) && IsThere(of_stack);
    part.scale = FindTensor(what, "scales", part.scale_is_of_stack ? of_stack : scales);
    if (form.has_global_scale) {
      part.global_scale = FindTensor(what, "scales", GlobalScaleNames(weight.name, form, part.packed));
    }
    if (form.has_zero_points) part.zero_point = FindTensor(what, "zero points", {ZeroPointName(weight.name)});
    return part;
  }

  // Codes that no layer can read may be packed in a way that config.json names and Layercast does not support. The
  // layer's why_no_form then has the reason. Any other problem is reported by the plan.
  void AddUnread(const TensorSpec& codes) {
    if (!by_module_) by_module_.emplace(model_);
    const auto* found = by_module_->Find(std::string(ParentPath(codes.name)));
    if (found == nullptr || found->layer->quantized_form() || found->layer->why_no_form().empty()) return;
    without_form_.try_emplace(found->path, "layer " + found->path + ": '" + codes.name + "' is " + Describe(codes) +
                                               ", " + WhyNoForm(*found->layer));
  }

  std::optional<std::uint32_t> FirstThere(const std::vector<std::string>& names) const {
    const auto there = std::ranges::find_if(names, [&](const std::string& name) { return index_of_.contains(name); });
    return there == names.end() ? std::nullopt : std::optional(index_of_.at(*there));
  }

  bool IsThere(const std::vector<std::string>& names) const { return FirstThere(names).has_value(); }

  std::uint32_t FindTensor(const std::string& what, const std::string& kind,
                           const std::vector<std::string>& names) const {
    if (const auto there = FirstThere(names)) return *there;
    throw Error(ErrorCode::kInvalidArgument, what + ", and its " + kind + ", '" + names.front() + "', are missing");
  }

  // Adds the activations' scale of a part. If none of a layer's parts has one, this is not an error here: the scale may
  // come under the layer's own name, and if it does not, the plan refuses it.
  void AddInputScale(QuantizedLayer& layer, const QuantizedLayer::Part& part, const Resolution& to) {
    const std::string name = layer.layer->InputScaleName(to.pieces.front().parameter);
    auto scale = std::ranges::find(layer.input_scales, name, &QuantizedLayer::InputScale::name);
    if (scale == layer.input_scales.end()) scale = layer.input_scales.insert(scale, {name, {}, part.packed});
    const std::vector<std::string> of_part = InputScaleNames(part.name, part.packed);
    if (const auto found = FirstThere(of_part)) {
      scale->parts.push_back(*found);
    } else {
      without_input_scale_.try_emplace(JoinPath(layer.path, name), of_part.front());
    }
  }

  void CheckForms() const {
    if (without_form_.empty()) return;
    std::vector<std::string> problems;
    for (const auto& [path, problem] : without_form_) problems.push_back(problem);
    throw Error(ErrorCode::kInvalidArgument,
                "these layers are codes that nothing says how to read:" + LineByLine(problems));
  }

  // Checks that all parts are there of a fused layer that has one scale, because that scale depends on all of them.
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
  std::optional<LayersByModule> by_module_;  // made when it is first needed
  std::unordered_map<const QuantizableLayer*, std::size_t> layer_of_;
  std::vector<QuantizedLayer> layers_;
  std::map<std::string, std::string> without_form_;         // a layer whose weights are codes -> what is wrong
  std::map<std::string, std::string> without_input_scale_;  // a layer's scale -> a part's tensor that is missing
};

}  // namespace

std::string WhyNoForm(const QuantizableLayer& layer) {
  const std::string why = layer.why_no_form().empty() ? "" : ": " + layer.why_no_form();
  return "but config.json gives this layer no quantized form" + why;
}

std::string LineByLine(std::span<const std::string> problems) {
  constexpr std::size_t kMost = 20;
  std::string lines;
  for (std::size_t i = 0; i < std::min(problems.size(), kMost); ++i) lines += "\n  " + problems[i];
  if (problems.size() > kMost) lines += "\n  and " + std::to_string(problems.size() - kMost) + " more";
  return lines;
}

std::vector<QuantizedLayer> FindQuantizedLayers(Module& model, std::span<const TensorSpec> specs) {
  return LayerFinder(model, specs).Find();
}

}  // namespace layercast
