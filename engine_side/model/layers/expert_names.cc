#include "engine_side/model/layers/expert_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <span>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/path.h"

namespace layercast {
namespace {

using Shards = ExpertName::Shards;
constexpr Shards kW1 = ExpertName::kW1, kW3 = ExpertName::kW3, kW2 = ExpertName::kW2, kW13 = ExpertName::kW13;

struct Projection {
  std::string_view name;
  Shards shards;
};
constexpr std::array kProjections = {Projection{"gate_proj", kW1},
                                     Projection{"up_proj", kW3},
                                     Projection{"down_proj", kW2},
                                     Projection{"w1", kW1},
                                     Projection{"w3", kW3},
                                     Projection{"w2", kW2},
                                     Projection{"gate_up_proj", kW13},
                                     Projection{"w13", kW13}};
// The modules that make up an expert in a checkpoint. The last one is the down projection; those before it are fused.
using ModuleNames = std::initializer_list<const char*>;
constexpr std::array kModuleNames = {ModuleNames{"gate_proj", "up_proj", "down_proj"}, ModuleNames{"w1", "w3", "w2"},
                                     ModuleNames{"gate_up_proj", "down_proj"}, ModuleNames{"w13", "w2"}};
// In experts without a gate, the up projection takes the gate's place.
constexpr std::array kUngatedProjections = {Projection{"up_proj", kW1}, Projection{"down_proj", kW2},
                                            Projection{"w1", kW1}, Projection{"w2", kW2}};
constexpr std::array kUngatedModuleNames = {ModuleNames{"up_proj", "down_proj"}, ModuleNames{"w1", "w2"}};

// Where a stacked tensor comes from: a checkpoint, a checkpoint that holds blocks of MXFP4 (never transposed; unpacked,
// they come expert by expert), or another engine.
enum class Origin : std::uint8_t { kCheckpoint, kBlocks, kEngine };

struct StackedTensor {
  std::string_view name;
  Shards shards;
  bool bias;
  Origin origin;
};
constexpr std::array kStackedTensors = {StackedTensor{"gate_up_proj", kW13, false, Origin::kCheckpoint},
                                        StackedTensor{"down_proj", kW2, false, Origin::kCheckpoint},
                                        StackedTensor{"gate_up_proj_bias", kW13, true, Origin::kCheckpoint},
                                        StackedTensor{"down_proj_bias", kW2, true, Origin::kCheckpoint},
                                        StackedTensor{"gate_up_proj_blocks", kW13, false, Origin::kBlocks},
                                        StackedTensor{"down_proj_blocks", kW2, false, Origin::kBlocks},
                                        StackedTensor{"w13_weight", kW13, false, Origin::kEngine},
                                        StackedTensor{"w2_weight", kW2, false, Origin::kEngine},
                                        StackedTensor{"w13_bias", kW13, true, Origin::kEngine},
                                        StackedTensor{"w2_bias", kW2, true, Origin::kEngine}};
constexpr std::array kUngatedStackedTensors = {StackedTensor{"up_proj", kW1, false, Origin::kCheckpoint},
                                               StackedTensor{"down_proj", kW2, false, Origin::kCheckpoint},
                                               StackedTensor{"w13_weight", kW1, false, Origin::kEngine},
                                               StackedTensor{"w2_weight", kW2, false, Origin::kEngine},
                                               StackedTensor{"w13_bias", kW1, true, Origin::kEngine},
                                               StackedTensor{"w2_bias", kW2, true, Origin::kEngine}};

std::span<const Projection> Projections(bool gated) {
  return gated ? std::span<const Projection>(kProjections) : kUngatedProjections;
}

std::span<const ModuleNames> AllModuleNames(bool gated) {
  return gated ? std::span<const ModuleNames>(kModuleNames) : kUngatedModuleNames;
}

std::span<const StackedTensor> StackedTensors(bool gated) {
  return gated ? std::span<const StackedTensor>(kStackedTensors) : kUngatedStackedTensors;
}

// The suffixes that the tensors of codes and scales of a stack add to the stack's own name.
struct Suffixes {
  explicit Suffixes(const QuantizedForm* form) {
    if (form == nullptr) return;
    scales = form->StackedScales();
    global_scales = form->StackedGlobalScales();
    global_reciprocals = form->StackedGlobalReciprocals();
    if (form->codes == DType::kF4) packed = SuffixesOfStack(QuantizedForm::kPackedCodes);
  }
  std::vector<std::string> scales, global_scales, global_reciprocals, packed;
};

bool Has(const std::vector<std::string>& suffixes, std::string_view suffix) {
  return std::ranges::find(suffixes, suffix) != suffixes.end();
}

// A number as checkpoints write it; nullopt for anything else.
std::optional<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool canonical = !text.empty() && text[0] != '-' && (text[0] != '0' || text.size() == 1);
  if (!canonical || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<ExpertName> ExpertNames::Parse(std::string_view name) const {
  const std::size_t dot = name.find('.');
  const std::optional<std::int64_t> expert = ParseNumber(name.substr(0, dot));
  if (dot != std::string_view::npos && expert && *expert >= options_.num_experts) return std::nullopt;
  std::optional<ExpertName> named =
      dot != std::string_view::npos && expert ? ParseOne(name.substr(dot + 1)) : ParseStacked(name);
  if (!named || (named->bias && !options_.bias)) return std::nullopt;
  if (dot != std::string_view::npos) named->expert = expert;
  return named;
}

// Parses the name of one expert's part. MXFP4 codes in blocks have no such names, unless they were unpacked.
std::optional<ExpertName> ExpertNames::ParseOne(std::string_view name) const {
  const auto stacked = StackedTensors(options_.gated);
  const auto blocks = std::ranges::find(stacked, name, &StackedTensor::name);
  if (blocks != stacked.end()) {
    if (blocks->origin != Origin::kBlocks || TakesBlocks()) return std::nullopt;
    ExpertName named{.expert = std::nullopt, .shards = blocks->shards};
    named.order.interleaved = options_.interleaved && blocks->shards == kW13;
    return named;
  }
  const std::size_t dot = std::min(name.find('.'), name.size());
  const std::string_view suffix = name.substr(std::min(dot + 1, name.size()));
  const auto projections = Projections(options_.gated);
  const auto found = std::ranges::find(projections, name.substr(0, dot), &Projection::name);
  if (found == projections.end()) return std::nullopt;
  const bool two_levels = form_ != nullptr && form_->has_global_scale;
  const bool e2m1 = form_ != nullptr && form_->codes == DType::kF4;
  ExpertName named{.expert = std::nullopt,
                   .shards = found->shards,
                   .bias = suffix == "bias",
                   .scale = form_ != nullptr && form_->NamesScale(suffix),
                   .global_scale = two_levels && suffix == QuantizedForm::kGlobalScale,
                   .reciprocal = two_levels && suffix == QuantizedForm::kGlobalReciprocal};
  named.global_scale = named.global_scale || named.reciprocal;
  const bool codes = suffix == kWeightName || (e2m1 && suffix == QuantizedForm::kPackedCodes);
  if (named.bias || ((codes || named.scale || named.global_scale) && !TakesBlocks())) return named;
  return std::nullopt;
}

std::optional<ExpertName> ExpertNames::ParseStacked(std::string_view name) const {
  const Suffixes suffixes(form_);
  for (const StackedTensor& tensor : StackedTensors(options_.gated)) {
    if (!name.starts_with(tensor.name)) continue;
    const std::string_view suffix = name.substr(tensor.name.size());
    const bool scale = !tensor.bias && Has(suffixes.scales, suffix);
    const bool reciprocal = !tensor.bias && Has(suffixes.global_reciprocals, suffix);
    const bool global_scale = reciprocal || (!tensor.bias && Has(suffixes.global_scales, suffix));
    const bool whole = suffix.empty() || (!tensor.bias && (suffix == kWeightSuffix || Has(suffixes.packed, suffix)));
    if (!scale && !global_scale && !whole) continue;
    const bool blocks = tensor.origin == Origin::kBlocks;
    if (whole && !tensor.bias && blocks != TakesBlocks()) return std::nullopt;
    ExpertName named{.expert = std::nullopt,
                     .shards = tensor.shards,
                     .bias = tensor.bias,
                     .scale = scale,
                     .global_scale = global_scale,
                     .reciprocal = reciprocal,
                     .blocks = blocks};
    named.order.transposed =
        options_.transposed && !tensor.bias && tensor.origin == Origin::kCheckpoint && !TakesBlocks();
    named.order.interleaved = options_.interleaved && tensor.shards == kW13 && tensor.origin != Origin::kEngine;
    return named;
  }
  return std::nullopt;
}

std::string ExpertNames::StackedName(bool down, bool bias, bool scale) const {
  const Origin origin = TakesBlocks() && !bias && !scale ? Origin::kBlocks : Origin::kCheckpoint;
  const auto fits = [&](const StackedTensor& tensor) {
    return tensor.origin == origin && tensor.bias == bias && ((tensor.shards & kW2) != 0) == down;
  };
  const std::string name(std::ranges::find_if(StackedTensors(options_.gated), fits)->name);
  return scale ? name + "_" + form_->checkpoint_scale : name;
}

std::vector<std::vector<QuantizableLayer::FusedModules>> ExpertNames::CheckpointModules(std::string_view path) const {
  std::vector<std::vector<QuantizableLayer::FusedModules>> ways;
  for (const ModuleNames names : AllModuleNames(options_.gated)) {
    std::vector<QuantizableLayer::FusedModules>& modules = ways.emplace_back();
    modules.reserve(2 * static_cast<std::size_t>(options_.num_experts));
    for (std::int64_t i = 0; i < options_.num_experts; ++i) {
      const std::string expert = JoinPath(path, std::to_string(i));
      QuantizableLayer::FusedModules fused;
      for (const char* name : names) fused.push_back(JoinPath(expert, name));
      QuantizableLayer::FusedModules down = {std::move(fused.back())};
      fused.pop_back();
      modules.push_back(std::move(fused));
      modules.push_back(std::move(down));
    }
  }
  return ways;
}

}  // namespace layercast
