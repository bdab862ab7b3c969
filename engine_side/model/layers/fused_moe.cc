// FusedMoE: places a part of an expert, under any of its names, among the stacked experts.
#include <algorithm>
#include <utility>

#include "engine_side/model/layers/expert_names.h"
#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/path.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr std::int64_t kBlockColumns = 32, kBlockBytes = 16;  // of MXFP4

// `box` with one more dimension in front, which spans [first, first + count).
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

// What a parameter holds. Parameters come in this order: w13_weight, w2_weight, each followed by its scales if it is
// quantized, then the biases.
struct FusedMoE::Slot {
  bool down = false;  // w2, not w13
  bool bias = false;
  bool scale = false;
  bool global_scale = false;
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
      slice_(Divide(options.size_field, options.intermediate_size, "tp_size", tp_size_)) {
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
  const std::uint32_t of_weight = parameters_per_weight();
  if (slot.bias) return 2 * of_weight + (slot.down ? 1 : 0);
  return (slot.down ? of_weight : 0) + (slot.global_scale ? 2 : slot.scale ? 1 : 0);
}

FusedMoE::Slot FusedMoE::SlotOf(std::uint32_t parameter) const {
  const std::uint32_t of_weight = parameters_per_weight();
  const bool bias = parameter >= 2 * of_weight;
  return {.down = bias ? parameter == 2 * of_weight + 1 : parameter >= of_weight,
          .bias = bias,
          .scale = IsScale(parameter),
          .global_scale = IsGlobalScale(parameter)};
}

std::vector<PlacedPiece> FusedMoE::Place(std::string_view name, std::string_view /*shard_id*/,
                                         const TensorSpec& spec) const {
  if (holds_input_scales() && name.ends_with("_input_scale")) return Module::Place(name, {}, spec);
  const std::optional<ExpertName> named = Parse(name);
  if (!named) throw Error(ErrorCode::kNotFound, class_name() + " has no parameter '" + std::string(name) + "'");
  const std::uint32_t index =
      IndexOf({named->shards == ExpertName::kW2, named->bias, named->scale, named->global_scale});
  const bool scalar = spec.shape.empty() && named->expert && is_one_number(*named);
  CheckFits(spec, parameters()[index].spec.dtype, scalar ? spec.shape : ShapeOf(*named));

  if (named->reciprocal && spec.dtype != DType::kF32) {
    throw Error(ErrorCode::kInvalidArgument,
                "expected " + Describe(DType::kF32, ShapeOf(*named)) + ", got " + Describe(spec));
  }
  const bool shared = is_one_number(*named) && options_.gated &&  // gate and up share it
                      (named->shards == ExpertName::kW1 || named->shards == ExpertName::kW3);

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
      pieces.push_back({part.parameter, source, Stack(part.destination, first, count), part.id, named->order, shared,
                        named->reciprocal});
    };
    if (local) {  // a number may come as a tensor of one element
      add(part.source.rank < spec.shape.size() ? Stack(part.source, 0, 1) : part.source, *local, 1);
    } else if (named->expert) {  // another rank holds this expert: no elements
      pieces.push_back({part.parameter, Stack({}, 0, 0), Stack(part.destination, 0, 0), part.id});
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

// "w2_bias" has to enter the sum over ranks just once, so the first rank holds it and the others hold zeros.
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
  if (takes_blocks() || (options_.transposed && !takes_quantized())) {  // only stacked tensors are like that
    return {{JoinPath(path, Names().StackedName(slot.down, slot.bias, slot.scale)), Box::Whole(shape)}};
  }
  const std::string suffix = slot.scale          ? "." + quantized_form()->checkpoint_scale
                             : slot.global_scale ? "." + std::string(QuantizedForm::kGlobalScale)
                             : slot.bias         ? ".bias"
                                                 : ".weight";
  const std::int64_t rows = shape.size() == 1 ? 0 : shape[1];
  std::vector<ExpectedTensor> tensors;
  for (std::int64_t i = 0; i < local_.count; ++i) {
    const std::string expert = JoinPath(path, std::to_string(local_.first + i * local_.step));
    const auto add = [&](const char* name, const char* mixtral_name, std::int64_t row, std::int64_t count) {
      Box box = Box::Slice(shape, 0, i, 1);
      box.begin[1] = row;
      box.extent[1] = count;
      tensors.push_back({JoinPath(expert, options_.mixtral_names ? mixtral_name : name) + suffix, box});
    };
    if (slot.down) {
      add("down_proj", "w2", 0, rows);
    } else if (!options_.gated) {
      add("up_proj", "w1", 0, rows);
    } else if (is_one_number(slot)) {
      add("gate_up_proj", "w13", 0, rows);
    } else {
      add("gate_proj", "w1", 0, rows / 2);
      add("up_proj", "w3", rows / 2, rows / 2);
    }
  }
  return tensors;
}

std::vector<std::vector<FusedMoE::FusedModules>> FusedMoE::CheckpointModules(std::string_view path) const {
  return Names().CheckpointModules(path);
}

ExpertNames FusedMoE::Names() const { return {options_, takes_quantized() ? &*quantized_form() : nullptr}; }

std::span<const std::string_view> FusedMoE::input_scale_names() const { return kInputScalesOfExperts; }

bool FusedMoE::takes_blocks() const { return takes_quantized() && quantized_form()->in_blocks; }

template <class Named>
bool FusedMoE::is_one_number(const Named& of) const {
  return of.global_scale || (of.scale && quantized_form()->scales == QuantizedForm::Scales::kTensor);
}

std::optional<ExpertName> FusedMoE::Parse(std::string_view name) const {
  std::optional<ExpertName> named = Names().Parse(name);
  if (named && is_one_number(*named)) named->order = {};
  // Where rows of gate and up alternate, a block of several rows would belong to neither.
  const bool blocks_alternate =
      named && named->scale && named->order.interleaved && UnitsOf(IndexOf({.scale = true})).rows > 1;
  return blocks_alternate ? std::nullopt : named;
}

Shape FusedMoE::ShapeOf(const ExpertName& named) const {
  const bool down = named.shards == ExpertName::kW2;
  const std::int64_t rows =
      down ? options_.hidden_size : (named.shards == ExpertName::kW13 ? 2 : 1) * options_.intermediate_size;
  const std::int64_t cols = down ? options_.intermediate_size : options_.hidden_size;
  const bool weight = !named.bias && !named.scale && !named.global_scale;
  const Units unit = weight ? UnitsOf(IndexOf({.down = down})) : Units{};
  Shape shape = {rows, cols / unit.cols};
  if (named.bias) shape = {rows};
  if (named.scale) shape = quantized_form()->ScaleShape(rows, cols);
  if (named.blocks) shape = {rows, cols / kBlockColumns, kBlockBytes};
  if (named.order.transposed) std::swap(shape[0], shape[1]);
  if (is_one_number(named)) return {named.expert ? 1 : options_.num_experts};
  if (!named.expert) shape.insert(shape.begin(), options_.num_experts);
  return shape;
}

// Gate and up are split among ranks by rows, down by columns; a bias has only rows. Scales are split like their weight,
// in their own units, if WhyNotSliced allows it. Scales of whole rows cover all columns. Scales of whole tensors are
// single numbers, which have no dimensions until they are stacked.
std::vector<FusedMoE::Part> FusedMoE::PartsOf(const ExpertName& named) const {
  const bool down = named.shards == ExpertName::kW2;
  const std::uint32_t index = IndexOf({down, named.bias, named.scale, named.global_scale});
  if (is_one_number(named)) {
    if (down) return {{index, "w2", {}, {}}};
    if (!options_.gated || named.shards == ExpertName::kW1) return {{index, "w1", {}, {}}};
    return {{index, named.shards == ExpertName::kW3 ? "w3" : "w13", {}, {}}};
  }
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
  if (named.order.interleaved) {  // this rank's parts of gate and of up, as one piece
    const Box source{rank, {2 * first, 0}, {2 * slice_, of_rows ? 1 : cols(options_.hidden_size)}};
    return {{index, "w13", source, {rank, {0, 0}, source.extent}}};
  }
  std::vector<Part> parts;
  std::int64_t shard_begin = 0;  // row of the tensor at which the shard begins
  const auto add = [&](ExpertName::Shards shard, std::string_view id, std::int64_t row) {
    if ((named.shards & shard) == 0) return;
    const Box source{rank, {shard_begin + rows(first), 0}, {rows(slice_), of_rows ? 1 : cols(options_.hidden_size)}};
    parts.push_back({index, id, source, {rank, {row, 0}, source.extent}});
    shard_begin += rows(options_.intermediate_size);
  };
  add(ExpertName::kW1, "w1", 0);
  add(ExpertName::kW3, "w3", rows(slice_));
  return parts;
}

// Gate and up must be whole blocks, because up begins where gate ends. The last block of down's columns may be partial
// if the columns are not split.
std::string FusedMoE::WhyNotSliced() const {
  const QuantizedForm& form = *quantized_form();
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
