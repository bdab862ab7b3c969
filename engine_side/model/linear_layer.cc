// LinearLayer: the weight of a linear layer, in full precision or as codes and scales.
#include <utility>

#include "layercast/model/linear.h"

namespace layercast {

LinearLayer::LinearLayer(std::string class_name, const LayerContext& context)
    : Module(std::move(class_name)),
      dtype_(context.dtype),
      tp_size_(context.parallel.tp_size),
      quantize_(context.quantize) {}

void LinearLayer::AddWeight(Shape shape, ShardAxis axis) {
  AddParameter({{"weight", dtype_, std::move(shape)}, axis, quantize_, {}});
}

void LinearLayer::AddBias(std::int64_t rows, ShardAxis axis) {
  AddParameter({{"bias", dtype_, {rows}}, axis, false, {}});
}

void LinearLayer::SetQuantization(bool quantize, std::optional<QuantizedForm> form) {
  TakeQuantized(false);
  // A layer that is exempt, or no matrix, is served in full precision.
  form_ = quantize_ && parameters()[kWeight].spec.shape.size() == 2 ? std::move(form) : std::nullopt;
  parameters()[kWeight].quantize = quantize_ && quantize;
  skip_rules_.clear();
  if (form_) skip_rules_.push_back({"input_scale", "input_scale is of activations, which are not quantized"});
}

void LinearLayer::TakeQuantized(bool quantized) {
  if (quantized == takes_quantized_) return;
  takes_quantized_ = quantized;
  Parameter& weight = parameters()[kWeight];
  weight.spec.dtype = quantized ? DType::kF8E4M3 : dtype_;
  weight.quantize = quantize_ && !quantized;
  weight.ToMeta();
  if (!quantized) {
    RemoveParameter(kScale);
    return;
  }
  const Shape shape = form_->ScaleShape(weight.spec.shape[0], weight.spec.shape[1]);
  // Scales are cut along with the weight, but for those that the other axis is the only one of.
  ShardAxis axis = weight.shard_axis;
  if (form_->scales == QuantizedForm::Scales::kTensor) axis = ShardAxis::kNone;
  if (form_->scales == QuantizedForm::Scales::kChannel && axis == ShardAxis::kCols) axis = ShardAxis::kNone;
  InsertParameter(kScale, {{std::string(form_->kernel_scale()), DType::kF32, shape}, axis, false, {}});
}

std::uint32_t LinearLayer::IndexOf(std::string_view name) const {
  const bool is_scale = takes_quantized_ && name == form_->checkpoint_scale;
  return ParameterIndex(is_scale ? form_->kernel_scale() : name);
}

std::string_view LinearLayer::CheckpointNameOf(std::uint32_t index) const {
  const bool is_scale = takes_quantized_ && index == kScale;
  return is_scale ? form_->checkpoint_scale : parameters()[index].spec.name;
}

LinearLayer::Units LinearLayer::UnitsOf(std::uint32_t index) const {
  if (!takes_quantized_ || index != kScale || form_->scales != QuantizedForm::Scales::kBlock) return {};
  return {form_->block_rows, form_->block_cols};
}

std::string LinearLayer::NotWholeBlocks(const std::string& what, std::int64_t first, std::int64_t end,
                                        std::int64_t size, std::int64_t block) const {
  return "expected whole blocks of " + std::to_string(block) + " " + what + " on each of " + std::to_string(tp_size_) +
         " ranks, got " + std::to_string(first) + " to " + std::to_string(end) + " of " + std::to_string(size);
}

}  // namespace layercast
