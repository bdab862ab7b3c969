// FusedMoE: from every name that checkpoints have for a part of an expert to its place among the stacked ones.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "engine_side/model/fit.h"
#include "engine_side/model/path.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"

namespace layercast {
namespace {

// The order in which parameters are added.
constexpr std::uint32_t kW13Weight = 0, kW2Weight = 1, kW13Bias = 2, kW2Bias = 3;

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

struct StackedTensor {
  std::string_view name;
  Shards shards;
  bool bias;
  bool own_name;
};
constexpr std::array kStackedTensors = {
    StackedTensor{"gate_up_proj", kW13, false, false},     StackedTensor{"down_proj", kW2, false, false},
    StackedTensor{"gate_up_proj_bias", kW13, true, false}, StackedTensor{"down_proj_bias", kW2, true, false},
    StackedTensor{"w13_weight", kW13, false, true},        StackedTensor{"w2_weight", kW2, false, true},
    StackedTensor{"w13_bias", kW13, true, true},           StackedTensor{"w2_bias", kW2, true, true}};

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

struct FusedMoE::Named {
  std::optional<std::int64_t> expert;  // nullopt: all, stacked
  Shards shards = 0;
  bool bias = false;
  bool transposed = false;
};

struct FusedMoE::Part {
  std::uint32_t parameter = 0;
  std::string_view id;
  Box source, destination;  // of one expert
};

FusedMoE::FusedMoE(const LayerContext& context, const ExpertOptions& options)
    : Module("FusedMoE"),
      options_(options),
      parallel_(context.parallel),
      local_(LocalExperts::Of(context.parallel, options.num_experts)),
      tp_size_(context.parallel.ep_size > 1 ? 1 : context.parallel.tp_size),
      tp_rank_(context.parallel.ep_size > 1 ? 0 : context.parallel.tp_rank),
      slice_(Divide("an expert's intermediate_size", options.intermediate_size, "tp_size", tp_size_)) {
  const auto add = [&](const char* name, Shape shape, ShardAxis axis, bool quantize) {
    AddParameter({{name, context.dtype, std::move(shape)}, tp_size_ > 1 ? axis : ShardAxis::kNone, quantize, {}});
  };
  const std::int64_t hidden = options.hidden_size;
  add("w13_weight", {local_.count, 2 * slice_, hidden}, ShardAxis::kRows, context.quantize);
  add("w2_weight", {local_.count, hidden, slice_}, ShardAxis::kCols, context.quantize);
  if (!options.bias) return;
  add("w13_bias", {local_.count, 2 * slice_}, ShardAxis::kRows, false);
  add("w2_bias", {local_.count, hidden}, ShardAxis::kNone, false);
}

std::vector<PlacedPiece> FusedMoE::Place(std::string_view name, std::string_view /*shard_id*/,
                                         const TensorSpec& spec) const {
  const std::optional<Named> named = Parse(name);
  if (!named) throw Error(ErrorCode::kNotFound, class_name() + " has no parameter '" + std::string(name) + "'");
  CheckFits(spec, parameters()[kW13Weight].spec.dtype, ShapeOf(*named));

  std::vector<PlacedPiece> pieces;
  const std::optional<std::int64_t> local = named->expert ? local_.LocalOf(*named->expert) : std::nullopt;
  for (Part part : PartsOf(*named)) {
    if (named->transposed) {
      std::swap(part.source.begin[0], part.source.begin[1]);
      std::swap(part.source.extent[0], part.source.extent[1]);
    }
    const auto add = [&](const Box& source, std::int64_t first, std::int64_t count) {
      pieces.push_back({part.parameter, source, Stack(part.destination, first, count), part.id, named->transposed});
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
  if (parameter != kW2Bias || tp_rank_ == 0) return {};
  return {Box::Whole(parameters()[kW2Bias].spec.shape)};
}

std::vector<ExpectedTensor> FusedMoE::Expected(std::uint32_t parameter, std::string_view path) const {
  const Shape& shape = parameters()[parameter].spec.shape;
  const bool down = parameter == kW2Weight || parameter == kW2Bias;
  const std::string suffix = parameter == kW13Weight || parameter == kW2Weight ? ".weight" : ".bias";
  std::vector<ExpectedTensor> tensors;
  for (std::int64_t i = 0; i < local_.count; ++i) {
    const std::string expert = JoinPath(path, std::to_string(local_.first + i * local_.step));
    const auto add = [&](const char* name, const char* mixtral_name, std::int64_t row, std::int64_t rows) {
      Box box = Box::Slice(shape, 0, i, 1);
      box.begin[1] = row;
      box.extent[1] = rows;
      tensors.push_back({JoinPath(expert, options_.mixtral_names ? mixtral_name : name) + suffix, box});
    };
    if (down) {
      add("down_proj", "w2", 0, shape[1]);
    } else {
      add("gate_proj", "w1", 0, slice_);
      add("up_proj", "w3", slice_, slice_);
    }
  }
  return tensors;
}

std::optional<FusedMoE::Named> FusedMoE::Parse(std::string_view name) const {
  const std::size_t dot = name.find('.');
  Named named;
  if (dot == std::string_view::npos) {
    const auto found = std::ranges::find(kStackedTensors, name, &StackedTensor::name);
    if (found == kStackedTensors.end()) return std::nullopt;
    named = {.expert = std::nullopt, .shards = found->shards, .bias = found->bias};
    named.transposed = options_.transposed && !found->bias && !found->own_name;
  } else {
    const std::string_view rest = name.substr(dot + 1);
    const std::string_view suffix = rest.substr(std::min(rest.find('.'), rest.size()));
    const auto found = std::ranges::find(kProjections, rest.substr(0, rest.size() - suffix.size()), &Projection::name);
    named.expert = ParseNumber(name.substr(0, dot));
    if (found == kProjections.end() || !named.expert || *named.expert >= options_.num_experts) return std::nullopt;
    if (suffix != ".weight" && suffix != ".bias") return std::nullopt;
    named.shards = found->shards;
    named.bias = suffix == ".bias";
  }
  if (named.bias && !options_.bias) return std::nullopt;
  return named;
}

Shape FusedMoE::ShapeOf(const Named& named) const {
  Shape shape;
  if (!named.expert) shape.push_back(options_.num_experts);
  if (named.shards == kW2) {
    shape.push_back(options_.hidden_size);
    if (!named.bias) shape.push_back(options_.intermediate_size);
  } else {
    shape.push_back((named.shards == kW13 ? 2 : 1) * options_.intermediate_size);
    if (!named.bias) shape.push_back(options_.hidden_size);
  }
  if (named.transposed) std::swap(shape[1], shape[2]);
  return shape;
}

// Gate and up are split over rows, down over columns; a bias has rows alone.
std::vector<FusedMoE::Part> FusedMoE::PartsOf(const Named& named) const {
  const std::int64_t hidden = options_.hidden_size;
  const std::int64_t first = tp_rank_ * slice_;
  const std::uint8_t rank = named.bias ? 1 : 2;
  if (named.shards == kW2) {
    const std::int64_t rows = named.bias && tp_rank_ != 0 ? 0 : hidden;
    const Box source{rank, {0, named.bias ? 0 : first}, {rows, named.bias ? 0 : slice_}};
    const Box destination{rank, {0, 0}, source.extent};
    return {{named.bias ? kW2Bias : kW2Weight, "w2", source, destination}};
  }
  std::vector<Part> parts;
  std::int64_t shard_begin = 0;  // in the tensor
  const auto add = [&](Shards shard, std::string_view id, std::int64_t row) {
    if ((named.shards & shard) == 0) return;
    const Box source{rank, {shard_begin + first, 0}, {slice_, named.bias ? 0 : hidden}};
    const Box destination{rank, {row, 0}, source.extent};
    parts.push_back({named.bias ? kW13Bias : kW13Weight, id, source, destination});
    shard_begin += options_.intermediate_size;
  };
  add(kW1, "w1", 0);
  add(kW3, "w3", slice_);
  return parts;
}

}  // namespace layercast
