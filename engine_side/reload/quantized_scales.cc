#include "engine_side/reload/quantized_scales.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine_side/model/reciprocals.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/check_scales.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

const std::uint8_t* BytesOf(const NamedTensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.tensor.data);
}

// Scales of a byte each, e4m3 or exponents (e8m0).
std::vector<float> ValuesOfBytes(const NamedTensor& tensor) {
  const ValueTables& tables = GetValueTables();
  const std::array<float, 256>& table = tensor.tensor.dtype == DType::kU8 ? tables.f8_e8m0 : tables.f8_e4m3;
  std::vector<float> values(static_cast<std::size_t>(tensor.tensor.num_bytes()));
  std::transform(BytesOf(tensor), BytesOf(tensor) + values.size(), values.begin(),
                 [&](std::uint8_t code) { return table[code]; });
  return values;
}

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

float QuantizedScales::Largest(const QuantizedLayer::InputScale& of) const {
  float largest = 0.0F;
  for (const std::uint32_t part : of.parts) {
    const std::string& name = checkpoint_.specs()[part].name;
    std::vector<float> scales = NumbersOf(part);
    CheckScales(scales, Sign::kPositive, layer_.path, name);
    if (of.reciprocal) {
      for (float& scale : scales) scale = 1.0F / scale;
      CheckScales(scales, Sign::kPositive, layer_.path, "1 / " + name);
    }
    for (const float scale : scales) largest = std::max(largest, scale);
  }
  return largest;
}

std::vector<float> QuantizedScales::NumbersOf(std::uint32_t tensor) const {
  const TensorSpec& spec = checkpoint_.specs()[tensor];
  if (!CanCast(spec.dtype, DType::kF32)) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + spec.name + "' expected floating-point scales, got " + Describe(spec));
  }
  std::vector<float> numbers(static_cast<std::size_t>(spec.num_elements()));
  Cast(spec.dtype, checkpoint_.Tensor(std::size_t{tensor}).tensor.data, DType::kF32,
       reinterpret_cast<std::byte*>(numbers.data()), numbers.size());
  return numbers;
}

// As the layer takes them.
Shape QuantizedScales::ShapeOf(const QuantizedLayer::Part& part) const {
  const Shape& weight = checkpoint_.specs()[part.weight].shape;
  const QuantizedForm& form = *layer_.layer->quantized_form();
  MatrixStack stack = MatrixStack::Of(weight);
  (part.transposed ? stack.rows : stack.cols) *= form.codes_per_element();
  Shape shape = form.ScaleShape(part.transposed ? stack.cols : stack.rows, part.transposed ? stack.rows : stack.cols);
  if (part.transposed) std::swap(shape.front(), shape.back());
  if (weight.size() == 3) shape.insert(shape.begin(), stack.count);
  return shape;
}

// ModelOpt's: [rows], not [rows, 1], and of blocks [rows / 128, 1, columns / 128, 1].
bool QuantizedScales::HaveAnotherShape(const QuantizedLayer::Part& part) const {
  const Shape& got = checkpoint_.specs()[part.scale].shape;
  const Shape expected = ShapeOf(part);
  return layer_.layer->quantized_form()->scales != QuantizedForm::Scales::kTensor && got != expected &&
         WithoutOnes(got) == WithoutOnes(expected);
}

// In the form's shape but for ones, or one for a whole stack of experts, none of them negative, NaN or infinite: what
// others fill scales with that never came.
std::vector<float> QuantizedScales::Of(const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.scale];
  const QuantizedForm& form = *layer_.layer->quantized_form();
  const Shape expected = ShapeOf(part);
  const std::string where = "layer " + layer_.path + ": '" + spec.name + "' expected ";
  const bool one_for_all = form.scales == QuantizedForm::Scales::kTensor && spec.num_elements() == 1;
  const bool readable = spec.dtype == form.scale_dtype || CanCast(spec.dtype, form.scale_dtype);
  if ((WithoutOnes(spec.shape) != WithoutOnes(expected) && !one_for_all) || !readable) {
    throw Error(ErrorCode::kInvalidArgument, where + Describe(form.scale_dtype, expected) + ", got " + Describe(spec));
  }
  std::vector<float> scales = form.scale_dtype == DType::kF32
                                  ? NumbersOf(part.scale)
                                  : ValuesOfBytes(checkpoint_.Tensor(std::size_t{part.scale}));
  if (one_for_all) scales.resize(static_cast<std::size_t>(NumElements(expected)), scales.front());
  CheckScales(scales, Sign::kNotNegative, layer_.path, spec.name);
  if (form.has_global_scale) {
    const std::vector<float> global_scales = GlobalOf(part);
    const std::size_t of_each = scales.size() / global_scales.size();
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= global_scales[i / of_each];
  }
  return scales;
}

// As the recipe has them: where the checkpoint's is its reciprocal, what that is of. One for each expert of a stack,
// which may have one for all.
std::vector<float> QuantizedScales::GlobalOf(const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.global_scale];
  const std::int64_t count = MatrixStack::Of(checkpoint_.specs()[part.weight].shape).count;
  const std::string where = "layer " + layer_.path + ": '" + spec.name + "' ";
  if (spec.num_elements() != 1 && spec.num_elements() != count) {
    throw Error(ErrorCode::kInvalidArgument,
                where + "expected " + Describe(DType::kF32, {count}) + ", got " + Describe(spec));
  }
  std::vector<float> scales = NumbersOf(part.global_scale);
  try {
    if (part.packed) scales = Reciprocals(reinterpret_cast<const std::byte*>(scales.data()), scales.size());
  } catch (const Error& error) {
    throw Error(error.code(), where + error.what());
  }
  CheckScales(scales, Sign::kNotNegative, layer_.path, spec.name);
  if (scales.size() == 1) scales.resize(static_cast<std::size_t>(count), scales.front());
  return scales;
}

}  // namespace layercast
