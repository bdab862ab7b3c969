#include "engine_side/reload/prequantized/quantized_scales.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine_side/model/tree/reciprocals.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/work/check_scales.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

const std::uint8_t* BytesOf(const NamedTensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.tensor.data);
}

// Whether a dtype's values can be read as numbers. Exponents (e8m0) can: they are exact in fp32, and transformers' own
// FP8 in blocks has scales in them.
bool AreNumbers(DType dtype) { return dtype == DType::kF8E8M0 || CanCast(dtype, DType::kF32); }

// The values of scales that take a byte each: e4m3, or exponents (e8m0).
std::vector<float> ValuesOfBytes(const NamedTensor& tensor) {
  const ValueTables& tables = GetValueTables();
  const std::array<float, 256>& table = tensor.tensor.dtype == DType::kF8E4M3 ? tables.f8_e4m3 : tables.f8_e8m0;
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

void QuantizedScales::CheckNumbers(std::uint32_t tensor) const {
  const TensorSpec& spec = checkpoint_.specs()[tensor];
  if (AreNumbers(spec.dtype)) return;
  throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "' expected floating-point scales, got " + Describe(spec));
}

std::vector<float> QuantizedScales::NumbersOf(std::uint32_t tensor) const {
  const TensorSpec& spec = checkpoint_.specs()[tensor];
  CheckNumbers(tensor);
  if (spec.dtype == DType::kF8E8M0) return ValuesOfBytes(checkpoint_.Tensor(std::size_t{tensor}));
  std::vector<float> numbers(static_cast<std::size_t>(spec.num_elements()));
  Cast(spec.dtype, checkpoint_.Tensor(std::size_t{tensor}).tensor.data, DType::kF32,
       reinterpret_cast<std::byte*>(numbers.data()), numbers.size());
  return numbers;
}

// The shape of the scales that the form expects. If it has one number for each matrix, that is [count, 1], or [1].
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

// Checkpoints write the same scales in several shapes. ModelOpt's are [rows] and not [rows, 1], and those of blocks are
// [rows / 128, 1, columns / 128, 1]; transformers' number for a whole weight is [1, 1]. A number without dimensions is
// taken as it is, and so are stacks of scales beside experts that come one by one.
TensorSpec QuantizedScales::Taken(const QuantizedLayer::Part& part) const {
  const QuantizedForm& form = *layer_.layer->quantized_form();
  TensorSpec spec = checkpoint_.specs()[part.scale];
  if (spec.dtype == DType::kF8E8M0 && form.scale_dtype == DType::kF32) spec.dtype = DType::kF32;
  Shape shape = ShapeOf(part);
  if (part.scale_is_of_stack || WithoutOnes(spec.shape) != WithoutOnes(shape)) return spec;
  const bool is_number = form.scales == QuantizedForm::Scales::kTensor;
  if (is_number) shape.resize(1);
  if (!is_number || spec.shape.size() > 1) spec.shape = std::move(shape);
  return spec;
}

void QuantizedScales::Check(const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.scale];
  const QuantizedForm& form = *layer_.layer->quantized_form();
  const Shape expected = ShapeOf(part);
  const bool one_for_all = form.scales == QuantizedForm::Scales::kTensor && spec.num_elements() == 1;
  const bool readable = form.scale_dtype == DType::kF32 ? AreNumbers(spec.dtype) : spec.dtype == form.scale_dtype;
  if ((WithoutOnes(spec.shape) != WithoutOnes(expected) && !one_for_all) || !readable) {
    throw Error(ErrorCode::kInvalidArgument, "layer " + layer_.path + ": '" + spec.name + "' expected " +
                                                 Describe(form.scale_dtype, expected) + ", got " + Describe(spec));
  }
  if (form.has_global_scale) CheckGlobal(part);
}

// The scales must have the form's shape, except for dimensions of size 1, or be a single one for a whole stack of
// experts. None may be negative, NaN or infinite: that is how scales look that never came.
std::vector<float> QuantizedScales::Of(const QuantizedLayer::Part& part) const {
  Check(part);
  const TensorSpec& spec = checkpoint_.specs()[part.scale];
  const QuantizedForm& form = *layer_.layer->quantized_form();
  const auto count = static_cast<std::size_t>(NumElements(ShapeOf(part)));
  std::vector<float> scales = form.scale_dtype == DType::kF32
                                  ? NumbersOf(part.scale)
                                  : ValuesOfBytes(checkpoint_.Tensor(std::size_t{part.scale}));
  if (scales.size() == 1) scales.resize(count, scales.front());  // one for all of them
  CheckScales(scales, Sign::kNotNegative, layer_.path, spec.name);
  if (form.has_global_scale) {
    const std::vector<float> global_scales = GlobalOf(part);
    const std::size_t of_each = scales.size() / global_scales.size();
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= global_scales[i / of_each];
  }
  return scales;
}

void QuantizedScales::CheckGlobal(const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.global_scale];
  const std::int64_t count = MatrixStack::Of(checkpoint_.specs()[part.weight].shape).count;
  if (spec.num_elements() != 1 && spec.num_elements() != count) {
    throw Error(ErrorCode::kInvalidArgument, "layer " + layer_.path + ": '" + spec.name + "' expected " +
                                                 Describe(DType::kF32, {count}) + ", got " + Describe(spec));
  }
  CheckNumbers(part.global_scale);
}

// The global scales as the recipe has them; a checkpoint's reciprocals are inverted. There is one for each expert of a
// stack, also if the checkpoint has one for all of them.
std::vector<float> QuantizedScales::GlobalOf(const QuantizedLayer::Part& part) const {
  CheckGlobal(part);
  const TensorSpec& spec = checkpoint_.specs()[part.global_scale];
  const std::int64_t count = MatrixStack::Of(checkpoint_.specs()[part.weight].shape).count;
  const std::string where = "layer " + layer_.path + ": '" + spec.name + "' ";
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
