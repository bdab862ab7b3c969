// FusedMoE: from every name that checkpoints have for a part of an expert to its place among the stacked ones.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "engine_side/model/fit.h"
#include "engine_side/model/path.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

using Shards = std::uint8_t;  // a set of
constexpr Shards kW1 = 1, kW3 = 2, kW2 = 4, kW13 = kW1 | kW3;

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
// The modules that an expert is to checkpoints.
using ModuleNames = std::initializer_list<const char*>;
constexpr std::array kModuleNames = {ModuleNames{"gate_proj", "up_proj", "down_proj"}, ModuleNames{"w1", "w3", "w2"},
                                     ModuleNames{"gate_up_proj", "down_proj"}, ModuleNames{"w13", "w2"}};
// Without a gate, up takes its place.
constexpr std::array kUngatedProjections = {Projection{"up_proj", kW1}, Projection{"down_proj", kW2},
                                            Projection{"w1", kW1}, Projection{"w2", kW2}};
constexpr std::array kUngatedModuleNames = {ModuleNames{"up_proj", "down_proj"}, ModuleNames{"w1", "w2"}};

constexpr std::int64_t kBlockColumns = 32, kBlockBytes = 16;  // of MXFP4

// Of an expert's part, and of all experts' together.
constexpr std::array<std::string_view, 3> kInputScaleNames = {"input_scale", "gate_up_proj_input_scale",
                                                              "down_proj_input_scale"};

// Where a stacked tensor comes from: a checkpoint, its blocks of MXFP4 (rows are rows; unpacked they come expert by
// expert), or another engine.
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

// A number as checkpoints write it; nullopt for anything else.
std::optional<std::int64_t> ParseNumber(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool canonical = !text.empty() && text[0] != '-' && (text[0] != '0' || text.size() == 1);
  if (!canonical || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The box with one more dimension before its own.
Box Stack(const Box& box, std::int64_t first, std::int64_t count) {
  Box stacked;
  stacked.rank = static_cast<std::uint8_t>(box.rank + 1);
  stacked.begin[0] = first;
  stacked.extent[0] = count;
  std::copy_n(box.begin.begin(), box.rank, stacked.begin.begin() + 1);
  std::copy_n(box.extent.begin(), box.rank, stacked.extent.begin() + 1);
  return stacked;
}

}  // namespace

// Parameters are, in this order: w13_weight, w2_weight, each with its scales behind it if it is quantized, the biases.
struct FusedMoE::Slot {
  bool down = false;  // w2, not w13
  bool bias = false;
  bool scale = false;
};

struct FusedMoE::Named {
  std::optional<std::int64_t> expert;  // nullopt: all, stacked
  Shards shards = 0;
  bool bias = false;
  bool scale = false;
  bool blocks = false;  // of MXFP4: [.., columns / 32, 16]
  ElementOrder order = {};
};

struct FusedMoE::Part {
  std::uint32_t parameter = 0;
  std::string_view id;
  Box source, destination;  // of one expert
};

FusedMoE::FusedMoE(const LayerContext& context, const ExpertOptions& options)
    : QuantizableLayer("FusedMoE", context),
      options_(options),
      parallel_(context.parallel),
      local_(LocalExperts::Of(context.parallel, options.num_experts)),
      tp_size_(context.parallel.ep_size > 1 ? 1 : context.parallel.tp_size),
      tp_rank_(context.parallel.ep_size > 1 ? 0 : context.parallel.tp_rank),
      slice_(Divide("an expert's intermediate_size", options.intermediate_size, "tp_size", tp_size_)) {
  const auto axis = [&](ShardAxis cut) { return tp_size_ > 1 ? cut : ShardAxis::kNone; };
  const std::int64_t hidden = options.hidden_size;
  const std::int64_t w13_rows = (options.gated ? 2 : 1) * slice_;
  AddWeight("w13_weight", {local_.count, w13_rows, hidden}, axis(ShardAxis::kRows));
  AddWeight("w2_weight", {local_.count, hidden, slice_}, axis(ShardAxis::kCols));
  if (!options.bias) return;
  AddParameter({{"w13_bias", context.dtype, {local_.count, w13_rows}}, axis(ShardAxis::kRows), false, {}});
  AddParameter({{"w2_bias", context.dtype, {local_.count, hidden}}, ShardAxis::kNone, false, {}});
}

std::uint32_t FusedMoE::IndexOf(const Slot& slot) const {
  const std::uint32_t of_weight = takes_quantized() ? 2 : 1;  // a weight's parameters
  if (slot.bias) return 2 * of_weight + (slot.down ? 1 : 0);
  return (slot.down ? of_weight : 0) + (slot.scale ? 1 : 0);
}

FusedMoE::Slot FusedMoE::SlotOf(std::uint32_t parameter) const {
  const std::uint32_t of_weight = takes_quantized() ? 2 : 1;
  const bool bias = parameter >= 2 * of_weight;
  return {.down = bias ? parameter == 2 * of_weight + 1 : parameter >= of_weight,
          .bias = bias,
          .scale = IsScale(parameter)};
}

std::vector<PlacedPiece> FusedMoE::Place(std::string_view name, std::string_view /*shard_id*/,
                                         const TensorSpec& spec) const {
  if (holds_input_scales() && name.ends_with("_input_scale")) return Module::Place(name, {}, spec);
  const std::optional<Named> named = Parse(name);
  if (!named) throw Error(ErrorCode::kNotFound, class_name() + " has no parameter '" + std::string(name) + "'");
  const std::uint32_t index = IndexOf({named->shards == kW2, named->bias, named->scale});
  CheckFits(spec, parameters()[index].spec.dtype, ShapeOf(*named));

  std::vector<PlacedPiece> pieces;
  const std::optional<std::int64_t> local = named->expert ? local_.LocalOf(*named->expert) : std::nullopt;
  for (Part part : PartsOf(*named)) {
    if (named->blocks) {
      part.source.extent[part.source.rank++] = kBlockBytes;
      part.destination.extent[1] *= kBlockBytes;
    }
    if (named->order.transposed) {
      std::swap(part.source.begin[0], part.source.begin[1]);
      std::swap(part.source.extent[0], part.source.extent[1]);
    }
    const auto add = [&](const Box& source, std::int64_t first, std::int64_t count) {
      pieces.push_back({part.parameter, source, Stack(part.destination, first, count), part.id, named->order});
    };
    if (local) {
      add(part.source, *local, 1);
    } else if (named->expert) {  // another rank's: no elements
      pieces.push_back({part.parameter, Box::Slice(spec.shape, 0, 0, 0), Stack(part.destination, 0, 0), part.id});
    } else if (local_.count == 0) {
      add(Stack(part.source, 0, 0), 0, 0);
    } else if (local_.step == 1) {
      add(Stack(part.source, local_.first, local_.count), 0, local_.count);
    } else {
      for (std::int64_t i = 0; i < local_.count; ++i) add(Stack(part.source, local_.first + i * local_.step, 1), i, 1);
    }
  }
  return pieces;
}

// "w2_bias" is added to a sum over ranks, once: the first rank has it, the others zeros.
std::vector<Box> FusedMoE::Padding(std::uint32_t parameter) const {
  if (IsInputScale(parameter)) return {};
  const Slot slot = SlotOf(parameter);
  if (!slot.down || !slot.bias || tp_rank_ == 0) return {};
  return {Box::Whole(parameters()[parameter].spec.shape)};
}

std::vector<ExpectedTensor> FusedMoE::Expected(std::uint32_t parameter, std::string_view path) const {
  if (IsInputScale(parameter)) return Module::Expected(parameter, path);
  const Shape& shape = parameters()[parameter].spec.shape;
  const Slot slot = SlotOf(parameter);
  if (takes_blocks() || (options_.transposed && !takes_quantized())) {  // which stacked tensors alone are
    const auto names = [&](const StackedTensor& tensor) {
      const bool blocks = takes_blocks() && !slot.bias && !slot.scale;
      return tensor.origin == (blocks ? Origin::kBlocks : Origin::kCheckpoint) && tensor.bias == slot.bias &&
             ((tensor.shards & kW2) != 0) == slot.down;
    };
    const std::string name(std::ranges::find_if(StackedTensors(options_.gated), names)->name);
    const std::string suffix = slot.scale ? "_" + quantized_form()->checkpoint_scale : "";
    return {{JoinPath(path, name + suffix), Box::Whole(shape)}};
  }
  const std::string suffix = slot.scale ? "." + quantized_form()->checkpoint_scale : slot.bias ? ".bias" : ".weight";
  std::vector<ExpectedTensor> tensors;
  for (std::int64_t i = 0; i < local_.count; ++i) {
    const std::string expert = JoinPath(path, std::to_string(local_.first + i * local_.step));
    const auto add = [&](const char* name, const char* mixtral_name, std::int64_t row, std::int64_t rows) {
      Box box = Box::Slice(shape, 0, i, 1);
      box.begin[1] = row;
      box.extent[1] = rows;
      tensors.push_back({JoinPath(expert, options_.mixtral_names ? mixtral_name : name) + suffix, box});
    };
    if (slot.down) {
      add("down_proj", "w2", 0, shape[1]);
    } else if (options_.gated) {
      add("gate_proj", "w1", 0, shape[1] / 2);
      add("up_proj", "w3", shape[1] / 2, shape[1] / 2);
    } else {
      add("up_proj", "w1", 0, shape[1]);
    }
  }
  return tensors;
}

std::vector<std::vector<std::string>> FusedMoE::CheckpointModules(std::string_view path) const {
  std::vector<std::vector<std::string>> ways;
  for (const ModuleNames names : AllModuleNames(options_.gated)) {
    std::vector<std::string>& modules = ways.emplace_back();
    modules.reserve(names.size() * static_cast<std::size_t>(options_.num_experts));
    for (std::int64_t i = 0; i < options_.num_experts; ++i) {
      const std::string expert = JoinPath(path, std::to_string(i));
      for (const char* name : names) modules.push_back(JoinPath(expert, name));
    }
  }
  return ways;
}

std::span<const std::string_view> FusedMoE::input_scale_names() const { return kInputScaleNames; }

bool FusedMoE::takes_blocks() const { return takes_quantized() && quantized_form()->codes == DType::kF4; }

std::optional<FusedMoE::Named> FusedMoE::Parse(std::string_view name) const {
  const std::size_t dot = name.find('.');
  const std::optional<std::int64_t> expert = ParseNumber(name.substr(0, dot));
  if (dot != std::string_view::npos && expert && *expert >= options_.num_experts) return std::nullopt;
  std::optional<Named> named =
      dot != std::string_view::npos && expert ? ParseOne(name.substr(dot + 1)) : ParseStacked(name);
  if (!named || (named->bias && !options_.bias)) return std::nullopt;
  if (dot != std::string_view::npos) named->expert = expert;
  return named;
}

// Of one expert. Codes of MXFP4 come stacked alone.
std::optional<FusedMoE::Named> FusedMoE::ParseOne(std::string_view name) const {
  const auto stacked = StackedTensors(options_.gated);
  const auto blocks = std::ranges::find(stacked, name, &StackedTensor::name);
  if (blocks != stacked.end()) {
    if (blocks->origin != Origin::kBlocks || takes_blocks()) return std::nullopt;
    Named named{.expert = std::nullopt, .shards = blocks->shards};
    named.order.interleaved = options_.interleaved && blocks->shards == kW13;
    return named;
  }
  const std::string_view suffix = name.substr(std::min(name.find('.'), name.size()));
  const auto projections = Projections(options_.gated);
  const auto found = std::ranges::find(projections, name.substr(0, name.size() - suffix.size()), &Projection::name);
  if (found == projections.end()) return std::nullopt;
  const Named named{.expert = std::nullopt,
                    .shards = found->shards,
                    .bias = suffix == ".bias",
                    .scale = takes_quantized() && suffix == "." + quantized_form()->checkpoint_scale};
  const bool weight = suffix == ".weight" || named.scale;
  if (named.bias || (weight && !takes_blocks())) return named;
  return std::nullopt;
}

std::optional<FusedMoE::Named> FusedMoE::ParseStacked(std::string_view name) const {
  const std::vector<std::string> scales =
      takes_quantized() ? quantized_form()->StackedScales() : std::vector<std::string>();
  for (const StackedTensor& tensor : StackedTensors(options_.gated)) {
    if (!name.starts_with(tensor.name)) continue;
    const std::string_view suffix = name.substr(tensor.name.size());
    const bool scale = !tensor.bias && std::ranges::find(scales, suffix) != scales.end();
    const bool whole = suffix.empty() || (suffix == ".weight" && !tensor.bias);
    if (!scale && !whole) continue;
    const bool blocks = tensor.origin == Origin::kBlocks;
    if (!scale && !tensor.bias && blocks != takes_blocks()) return std::nullopt;
    Named named{.expert = std::nullopt, .shards = tensor.shards, .bias = tensor.bias, .scale = scale, .blocks = blocks};
    named.order.transposed =
        options_.transposed && !tensor.bias && tensor.origin == Origin::kCheckpoint && !takes_blocks();
    named.order.interleaved = options_.interleaved && tensor.shards == kW13 && tensor.origin != Origin::kEngine;
    // A block of rows that alternate is neither gate's nor up's.
    if (scale && named.order.interleaved && UnitsOf(IndexOf({.scale = true})).rows > 1) return std::nullopt;
    return named;
  }
  return std::nullopt;
}

Shape FusedMoE::ShapeOf(const Named& named) const {
  const bool down = named.shards == kW2;
  const std::int64_t rows = down ? options_.hidden_size : (named.shards == kW13 ? 2 : 1) * options_.intermediate_size;
  const std::int64_t cols = down ? options_.intermediate_size : options_.hidden_size;
  Shape shape = {rows, cols};
  if (named.bias) shape = {rows};
  if (named.scale) shape = quantized_form()->ScaleShape(rows, cols);
  if (named.blocks) shape = {rows, cols / kBlockColumns, kBlockBytes};
  if (named.order.transposed) std::swap(shape[0], shape[1]);
  if (!named.expert) shape.insert(shape.begin(), options_.num_experts);
  return shape;
}

// Gate and up are split over rows, down over columns; a bias has rows alone. Scales are split like what they are of, in
// units of theirs: WhyNotSliced says whether they can be. Those of whole rows are of all columns.
std::vector<FusedMoE::Part> FusedMoE::PartsOf(const Named& named) const {
  const bool down = named.shards == kW2;
  const std::uint32_t index = IndexOf({down, named.bias, named.scale});
  const Units unit = named.blocks ? Units{1, kBlockColumns} : UnitsOf(index);
  const bool of_rows = named.scale && quantized_form()->scales == QuantizedForm::Scales::kChannel;
  const auto rows = [&](std::int64_t elements) { return CeilDivide(elements, unit.rows); };
  const auto cols = [&](std::int64_t elements) { return named.bias ? 0 : CeilDivide(elements, unit.cols); };
  const std::int64_t first = tp_rank_ * slice_;
  const std::uint8_t rank = named.bias ? 1 : 2;
  if (down) {
    const std::int64_t count = named.bias && tp_rank_ != 0 ? 0 : rows(options_.hidden_size);
    const Box source{rank, {0, of_rows ? 0 : cols(first)}, {count, of_rows ? 1 : cols(slice_)}};
    return {{index, "w2", source, {rank, {0, 0}, source.extent}}};
  }
  if (named.order.interleaved) {  // this rank's part of gate and that of up, in one
    const Box source{rank, {2 * first, 0}, {2 * slice_, of_rows ? 1 : cols(options_.hidden_size)}};
    return {{index, "w13", source, {rank, {0, 0}, source.extent}}};
  }
  std::vector<Part> parts;
  std::int64_t shard_begin = 0;  // in the tensor
  const auto add = [&](Shards shard, std::string_view id, std::int64_t row) {
    if ((named.shards & shard) == 0) return;
    const Box source{rank, {shard_begin + rows(first), 0}, {rows(slice_), of_rows ? 1 : cols(options_.hidden_size)}};
    parts.push_back({index, id, source, {rank, {row, 0}, source.extent}});
    shard_begin += rows(options_.intermediate_size);
  };
  add(kW1, "w1", 0);
  add(kW3, "w3", rows(slice_));
  return parts;
}

// Gate and up are whole blocks, because up begins where gate ends; the last block of down's columns may be a part of
// one where they are not cut.
std::string FusedMoE::WhyNotSliced() const {
  const QuantizedForm& form = *quantized_form();
  if (form.scales == QuantizedForm::Scales::kTensor) {
    return "expected scales of blocks or of rows, got one for each tensor; gate and up of an expert have one together";
  }
  if (form.scales != QuantizedForm::Scales::kBlock) return {};
  const std::int64_t first = tp_rank_ * slice_;
  const std::int64_t whole = options_.intermediate_size;
  if (slice_ % form.block_rows != 0) {
    return NotWholeBlocks("rows of 'gate_proj'", first, first + slice_, whole, form.block_rows);
  }
  if (slice_ % form.block_cols == 0 || slice_ == whole) return {};
  return NotWholeBlocks("columns of 'down_proj'", first, first + slice_, whole, form.block_cols);
}

}  // namespace layercast
