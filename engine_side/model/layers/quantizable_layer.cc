#include "layercast/model/quantizable_layer.h"

#include <cstddef>
#include <utility>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/path.h"
#include "src/base/check.h"

namespace layercast {
namespace {

constexpr const char* kShapeOfPacked = "the shape of packed integers, which the layer has";
constexpr const char* kNoInputScale = "scales of activations, which this engine does not have";

}  // namespace

QuantizableLayer::QuantizableLayer(std::string class_name, const LayerContext& context)
    : Module(std::move(class_name)),
      dtype_(context.dtype),
      tp_size_(context.parallel.tp_size),
      quantize_(context.quantize),
      takes_recipe_(context.quantize) {}

void QuantizableLayer::AddWeight(std::string name, Shape shape, ShardAxis axis) {
  LAYERCAST_CHECK(name.ends_with(kWeightName) && parameters().size() == num_weights_);
  AddParameter({{std::move(name), dtype_, std::move(shape)}, axis, quantize_, {}});
  ++num_weights_;
}

void QuantizableLayer::SetQuantization(bool quantize, std::optional<QuantizedForm> form, std::string why_no_form) {
  TakeQuantized(false);
  why_no_form_ = quantize_ ? std::move(why_no_form) : "no recipe applies to it";
  form_ = quantize_ ? std::move(form) : std::nullopt;  // an exempt layer is served in full precision
  takes_recipe_ = quantize_ && quantize;
  for (Parameter& weight : parameters().first(num_weights_)) {
    weight.quantize = takes_recipe_;
    weight.form = form_ ? &*form_ : nullptr;
  }
  HoldInputScales(holds_input_scales_);
}

void QuantizableLayer::TakeQuantized(bool quantized) {
  if (quantized == takes_quantized_) return;
  takes_quantized_ = quantized;
  for (std::uint32_t i = 0; i < num_weights_; ++i) {
    const std::uint32_t index = quantized ? parameters_per_weight() * i : i;
    Parameter& weight = parameters()[index];
    weight.spec.dtype = quantized ? form_->code_dtype() : dtype_;
    weight.quantize = takes_recipe_ && !quantized;
    weight.ToMeta();
    std::int64_t& cols = weight.spec.shape.back();
    if (quantized) {
      Parameter scale = ScaleOf(weight);
      cols /= form_->codes_per_element();
      if (form_->has_global_scale) InsertParameter(index + 1, GlobalScaleOf(weight));
      InsertParameter(index + 1, std::move(scale));
    } else {
      cols *= form_->codes_per_element();
      RemoveParameter(index + 1);
      if (form_->has_global_scale) RemoveParameter(index + 1);
    }
  }
}

void QuantizableLayer::HoldInputScales(bool hold) {
  const bool held = holds_input_scales_;
  holds_input_scales_ = hold && takes_recipe_;
  for (std::uint32_t i = 0; i < num_weights_ && held != holds_input_scales_; ++i) {
    if (holds_input_scales_) {
      AddParameter({.spec = {InputScaleName(i), DType::kF32, {1}}, .storage = {}, .sign = Sign::kPositive});
    } else {
      RemoveParameter(parameters().size() - 1);
    }
  }
  SetSkipRules();
}

std::string QuantizableLayer::InputScaleName(std::uint32_t weight) const {
  std::string name = parameters()[std::size_t{parameters_per_weight()} * weight].spec.name;
  return name.replace(name.size() - kWeightName.size(), kWeightName.size(), kInputScale);
}

bool QuantizableLayer::IsInputScale(std::uint32_t index) const {
  return holds_input_scales_ && index + num_weights_ >= parameters().size();
}

std::span<const std::string_view> QuantizableLayer::input_scale_names() const { return kInputScales; }

void QuantizableLayer::SetSkipRules() {
  skip_rules_.clear();
  if (form_ && form_->packed_bits != 0) skip_rules_.push_back({"weight_shape", kShapeOfPacked});
  if (!form_ || holds_input_scales_) return;
  if (form_->codes == DType::kI8) skip_rules_.push_back({"input_zero_point", kNoInputScale});
  if (form_->has_global_scale) skip_rules_.push_back({kInputGlobalScale, kNoInputScale});
  for (const std::string_view name : input_scale_names()) skip_rules_.push_back({name, kNoInputScale});
}

std::vector<std::vector<QuantizableLayer::FusedModules>> QuantizableLayer::CheckpointModules(
    std::string_view path) const {
  FusedModules modules;
  for (const ShardName& shard : shard_names()) modules.push_back(JoinPath(ParentPath(path), shard.checkpoint_name));
  return {{std::move(modules)}};
}

Parameter QuantizableLayer::ScaleOf(const Parameter& weight) const {
  const Shape& of = weight.spec.shape;
  Shape shape = form_->ScaleShape(of[of.size() - 2], of.back());
  if (of.size() == 3) {  // one number for a matrix; a vector of them for a stack
    if (shape == Shape{1}) shape.clear();
    shape.insert(shape.begin(), of.front());
  }
  // Scales are split along with the weight, except along an axis of which they have no more than one entry.
  ShardAxis axis = weight.shard_axis;
  if (form_->scales == QuantizedForm::Scales::kTensor) axis = ShardAxis::kNone;
  if (form_->scales == QuantizedForm::Scales::kChannel && axis == ShardAxis::kCols) axis = ShardAxis::kNone;
  std::string name = weight.spec.name.substr(0, weight.spec.name.size() - kWeightName.size());
  return {.spec = {name.append(form_->kernel_scale()), form_->scale_dtype, std::move(shape)},
          .shard_axis = axis,
          .storage = {},
          .sign = form_->scale_dtype == DType::kU8 ? Sign::kAny : Sign::kNotNegative};  // U8 scales are exponents
}

Parameter QuantizableLayer::GlobalScaleOf(const Parameter& weight) const {
  const Shape& of = weight.spec.shape;
  std::string name = weight.spec.name.substr(0, weight.spec.name.size() - kWeightName.size());
  return {.spec = {name.append(QuantizedForm::kGlobalScale), DType::kF32, {of.size() == 3 ? of.front() : 1}},
          .storage = {},
          .sign = Sign::kNotNegative};
}

std::uint32_t QuantizableLayer::parameters_per_weight() const {
  if (!takes_quantized_) return 1;
  return form_->has_global_scale ? 3 : 2;
}

bool QuantizableLayer::IsScale(std::uint32_t index) const {
  const std::uint32_t of_weight = parameters_per_weight();
  return index < of_weight * num_weights_ && index % of_weight == 1;
}

bool QuantizableLayer::IsGlobalScale(std::uint32_t index) const {
  const std::uint32_t of_weight = parameters_per_weight();
  return index < of_weight * num_weights_ && index % of_weight == 2;
}

QuantizableLayer::Units QuantizableLayer::UnitsOf(std::uint32_t index) const {
  const bool of_weight = takes_quantized_ && index < parameters_per_weight() * num_weights_;
  if (of_weight && index % parameters_per_weight() == 0) return {1, form_->codes_per_element()};
  if (!IsScale(index) || form_->scales != QuantizedForm::Scales::kBlock) return {};
  return {form_->block_rows, form_->block_cols};
}

std::string QuantizableLayer::NotWholeBlocks(const std::string& what, std::int64_t first, std::int64_t end,
                                             std::int64_t size, std::int64_t block) const {
  return "expected whole blocks of " + std::to_string(block) + " " + what + " on each of " + std::to_string(tp_size_) +
         " ranks, got " + std::to_string(first) + " to " + std::to_string(end) + " of " + std::to_string(size);
}

}  // namespace layercast
