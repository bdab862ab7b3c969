#include "engine_side/reload/quantized_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/model/path.h"
#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/check_scales.h"
#include "engine_side/reload/nvfp4_parts.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

using Way = QuantizedLayer::Way;

const std::uint8_t* CodesOf(const NamedTensor& weight) {
  return reinterpret_cast<const std::uint8_t*>(weight.tensor.data);
}

// Scales of a byte each, e4m3 or exponents (e8m0).
std::vector<float> ValuesOfBytes(const NamedTensor& tensor) {
  const ValueTables& tables = GetValueTables();
  const std::array<float, 256>& table = tensor.tensor.dtype == DType::kU8 ? tables.f8_e8m0 : tables.f8_e4m3;
  std::vector<float> values(static_cast<std::size_t>(tensor.tensor.num_bytes()));
  std::transform(CodesOf(tensor), CodesOf(tensor) + values.size(), values.begin(),
                 [&](std::uint8_t code) { return table[code]; });
  return values;
}

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

QuantizedCheckpoint::QuantizedCheckpoint(Checkpoint checkpoint, Module& model, const QuantizationConfig& quantization,
                                         MemoryResource& memory, WorkerPool& pool)
    : checkpoint_(std::move(checkpoint)),
      memory_(memory),
      pool_(pool),
      quantized_(TakeQuantizedLayers(model, checkpoint_.specs(), quantization)) {
  std::vector<bool> replaced(checkpoint_.specs().size());
  for (const QuantizedLayer& layer : quantized_.layers) {
    for (const QuantizedLayer::InputScale& scale : layer.input_scales) {
      for (const std::uint32_t part : scale.parts) replaced[part] = true;
      AddNumber(JoinPath(layer.path, scale.name), [this, &layer, &scale] { return LargestScale(layer, scale); });
    }
    const auto replace = [&](const QuantizedLayer::Part& part) {
      replaced[part.weight] = replaced[part.scale] = true;
      if (layer.layer->quantized_form()->has_global_scale) replaced[part.global_scale] = true;
    };
    if (layer.way == Way::kDequantize) {
      std::ranges::for_each(layer.parts, replace);
      AddDequantized(layer);
    }
    for (const QuantizedLayer::Fused& fused : layer.fused) {
      std::ranges::for_each(fused.parts, replace);
      AddFused(layer, fused);
    }
    for (const QuantizedLayer::Part& part : layer.parts) {
      if (replaced[part.scale]) continue;
      if (const auto for_all = ScaleForAll(layer, part)) {
        replaced[*for_all] = true;
        AddScaleOfEach(layer, part, *for_all);
      }
      if (replaced[part.scale]) continue;
      if (HasScalesInAnotherShape(layer, part)) {
        replaced[part.scale] = true;
        AddScalesInShape(layer, part);
      }
    }
  }
  for (const PackedExperts& experts : quantized_.experts) {
    if (!experts.unpacked) continue;
    replaced[experts.blocks] = replaced[experts.scales] = true;
    for (std::int64_t i = 0; i < experts.count; ++i) {
      AddMade(experts.Unpacked(i), [this, &experts, i](std::byte* values) {
        Unpack(experts, i, checkpoint_.Tensor(std::size_t{experts.blocks}),
               checkpoint_.Tensor(std::size_t{experts.scales}), values, pool_);
      });
    }
  }
  for (std::uint32_t i = 0; i < replaced.size(); ++i) {
    if (replaced[i]) continue;
    specs_.push_back(checkpoint_.specs()[i]);
    origins_.push_back({nullptr, i});
  }
}

void QuantizedCheckpoint::AddMade(TensorSpec spec, Maker make) {
  specs_.push_back(std::move(spec));
  origins_.push_back({std::move(make), 0});
}

void QuantizedCheckpoint::AddDequantized(const QuantizedLayer& layer) {
  const DType dtype = layer.layer->parameters()[0].spec.dtype;
  for (const QuantizedLayer::Part& part : layer.parts) {
    Shape shape = checkpoint_.specs()[part.weight].shape;
    shape[shape.size() - (part.transposed ? 2 : 1)] *= layer.layer->quantized_form()->codes_per_byte();
    AddMade({part.name, dtype, std::move(shape)},
            [this, &layer, &part, dtype](std::byte* values) { Dequantized(layer, part, dtype, values); });
  }
}

void QuantizedCheckpoint::AddFused(const QuantizedLayer& layer, const QuantizedLayer::Fused& fused) {
  const QuantizedForm& form = *layer.layer->quantized_form();
  TensorSpec spec{fused.path + ".weight", form.code_dtype(), checkpoint_.specs()[fused.parts[0].weight].shape};
  spec.shape[0] = 0;
  for (const QuantizedLayer::Part& part : fused.parts) spec.shape[0] += checkpoint_.specs()[part.weight].shape[0];
  if (form.has_global_scale) {
    const Nvfp4Parts parts(checkpoint_, layer);
    const std::int64_t rows = spec.shape[0];
    const std::int64_t cols = spec.shape[1] * form.codes_per_byte();
    AddMade(std::move(spec), [parts, &fused](std::byte* codes) { parts.Codes(fused, codes); });
    AddMade({JoinPath(fused.path, form.checkpoint_scale), form.scale_dtype, form.ScaleShape(rows, cols)},
            [parts, &fused](std::byte* scales) { parts.Scales(fused, scales); });
    AddNumber(JoinPath(fused.path, QuantizedForm::kGlobalScale),
              [parts, &fused] { return parts.LargestGlobalScale(fused); });
    return;
  }
  AddMade(std::move(spec), [this, &layer, &fused](std::byte* codes) { AtLargestScale(layer, fused, codes); });
  AddNumber(JoinPath(fused.path, form.checkpoint_scale), [this, &layer, &fused] { return LargestScale(layer, fused); });
}

// The one number of a stack of experts, whose layer has one for each.
std::optional<std::uint32_t> QuantizedCheckpoint::ScaleForAll(const QuantizedLayer& layer,
                                                              const QuantizedLayer::Part& part) const {
  const QuantizedForm& form = *layer.layer->quantized_form();
  const std::uint32_t number = form.has_global_scale ? part.global_scale : part.scale;
  const bool is_stack = checkpoint_.specs()[part.weight].shape.size() == 3;
  if (!form.has_number() || !is_stack || checkpoint_.specs()[number].num_elements() != 1) return std::nullopt;
  return number;
}

void QuantizedCheckpoint::AddScaleOfEach(const QuantizedLayer& layer, const QuantizedLayer::Part& part,
                                         std::uint32_t for_all) {
  const std::int64_t count = checkpoint_.specs()[part.weight].shape[0];
  AddMade({checkpoint_.specs()[for_all].name, DType::kF32, {count}}, [this, &layer, &part](std::byte* values) {
    const bool global = layer.layer->quantized_form()->has_global_scale;
    const std::vector<float> scales =
        global ? Nvfp4Parts(checkpoint_, layer).GlobalScales(part) : ScalesOf(layer, part);
    std::memcpy(values, scales.data(), scales.size() * sizeof(float));
  });
}

// ModelOpt's: [rows], not [rows, 1], and of blocks [rows / 128, 1, columns / 128, 1].
bool QuantizedCheckpoint::HasScalesInAnotherShape(const QuantizedLayer& layer, const QuantizedLayer::Part& part) const {
  const Shape& got = checkpoint_.specs()[part.scale].shape;
  const Shape expected = ScaleShapeOf(layer, part);
  return layer.layer->quantized_form()->scales != QuantizedForm::Scales::kTensor && got != expected &&
         WithoutOnes(got) == WithoutOnes(expected);
}

void QuantizedCheckpoint::AddScalesInShape(const QuantizedLayer& layer, const QuantizedLayer::Part& part) {
  TensorSpec spec = checkpoint_.specs()[part.scale];
  spec.shape = ScaleShapeOf(layer, part);
  AddMade(std::move(spec), [this, &part](std::byte* values) {
    const NamedTensor scales = checkpoint_.Tensor(std::size_t{part.scale});
    std::memcpy(values, scales.tensor.data, static_cast<std::size_t>(scales.tensor.num_bytes()));
  });
}

void QuantizedCheckpoint::AddNumber(std::string name, std::function<float()> make) {
  AddMade({std::move(name), DType::kF32, {1}}, [make = std::move(make)](std::byte* value) {
    const float number = make();
    std::memcpy(value, &number, sizeof(number));
  });
}

std::uint64_t QuantizedCheckpoint::total_bytes() const { return TotalBytes(specs_); }

std::unique_ptr<WeightsIterator> QuantizedCheckpoint::Weights(std::vector<std::uint32_t> order) const {
  const bool as_it_is = std::ranges::all_of(origins_, [](const Origin& origin) { return !origin.make; });
  if (as_it_is) return checkpoint_.Weights(std::move(order));
  return MakeWeightsIterator([this, order = std::move(order), next = std::size_t{0}]() mutable {
    return next < order.size() ? std::optional(Make(order[next++])) : std::nullopt;
  });
}

NamedTensor QuantizedCheckpoint::Make(std::uint32_t index) const {
  const Origin& origin = origins_[index];
  if (!origin.make) return checkpoint_.Tensor(std::size_t{origin.index});
  const TensorSpec& spec = specs_[index];
  const auto values = std::make_shared<const Buffer>(memory_, static_cast<std::size_t>(spec.num_bytes()));
  origin.make(values->data());
  return {spec.name, {spec.dtype, spec.shape, values->data(), {}}, values};
}

void QuantizedCheckpoint::Dequantized(const QuantizedLayer& layer, const QuantizedLayer::Part& part, DType dtype,
                                      std::byte* values) const {
  const NamedTensor codes = checkpoint_.Tensor(std::size_t{part.weight});
  const std::vector<float> scales = ScalesOf(layer, part);
  const QuantizedForm& form = *layer.layer->quantized_form();
  MatrixStack stack = MatrixStack::Of(codes.tensor.shape);
  (part.transposed ? stack.rows : stack.cols) *= form.codes_per_byte();
  QuantizedWeight weight{.codes = nullptr,
                         .rows = stack.rows,
                         .cols = stack.cols,
                         .scales = {},
                         .block_rows = form.block_rows,
                         .block_cols = form.block_cols,
                         .elements = form.codes,
                         .pairs_rows = part.transposed && form.codes_per_byte() > 1};
  if (form.scales != QuantizedForm::Scales::kBlock) {
    const std::int64_t rows = part.transposed ? weight.cols : weight.rows;  // of the weight, where outputs are rows
    weight.block_rows = form.scales == QuantizedForm::Scales::kTensor ? rows : 1;
    weight.block_cols = part.transposed ? weight.rows : weight.cols;
  }
  if (part.transposed) std::swap(weight.block_rows, weight.block_cols);
  const std::int64_t of_matrix = stack.count == 0 ? 0 : static_cast<std::int64_t>(scales.size()) / stack.count;
  for (std::int64_t i = 0; i < stack.count; ++i) {
    weight.codes = CodesOf(codes) + i * stack.rows * stack.cols / form.codes_per_byte();
    weight.scales.assign(scales.begin() + i * of_matrix, scales.begin() + (i + 1) * of_matrix);
    Dequantize(weight, dtype, values + i * NumBytes(dtype, {stack.rows, stack.cols}), pool_);
  }
}

float QuantizedCheckpoint::LargestScale(const QuantizedLayer& layer, const QuantizedLayer::Fused& of) const {
  float largest = 0.0F;
  for (const QuantizedLayer::Part& part : of.parts) largest = std::max(largest, ScalesOf(layer, part)[0]);
  return largest;
}

float QuantizedCheckpoint::LargestScale(const QuantizedLayer& layer, const QuantizedLayer::InputScale& of) const {
  float largest = 0.0F;
  for (const std::uint32_t part : of.parts) {
    const std::string& name = checkpoint_.specs()[part].name;
    std::vector<float> scales = NumbersOf(part);
    CheckScales(scales, Sign::kPositive, layer.path, name);
    if (of.reciprocal) {
      for (float& scale : scales) scale = 1.0F / scale;
      CheckScales(scales, Sign::kPositive, layer.path, "1 / " + name);
    }
    for (const float scale : scales) largest = std::max(largest, scale);
  }
  return largest;
}

std::vector<float> QuantizedCheckpoint::NumbersOf(std::uint32_t tensor) const {
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

// All parts, one after another.
void QuantizedCheckpoint::AtLargestScale(const QuantizedLayer& layer, const QuantizedLayer::Fused& fused,
                                         std::byte* codes) const {
  const float largest = LargestScale(layer, fused);
  auto* to = reinterpret_cast<std::uint8_t*>(codes);
  for (const QuantizedLayer::Part& part : fused.parts) {
    const NamedTensor weight = checkpoint_.Tensor(std::size_t{part.weight});
    const auto count = static_cast<std::size_t>(weight.tensor.num_bytes());
    Rescale(CodesOf(weight), count, ScalesOf(layer, part)[0], largest, to);
    to += count;
  }
}

// As the layer takes them.
Shape QuantizedCheckpoint::ScaleShapeOf(const QuantizedLayer& layer, const QuantizedLayer::Part& part) const {
  const Shape& weight = checkpoint_.specs()[part.weight].shape;
  const QuantizedForm& form = *layer.layer->quantized_form();
  MatrixStack stack = MatrixStack::Of(weight);
  (part.transposed ? stack.rows : stack.cols) *= form.codes_per_byte();
  Shape shape = form.ScaleShape(part.transposed ? stack.cols : stack.rows, part.transposed ? stack.rows : stack.cols);
  if (part.transposed) std::swap(shape.front(), shape.back());
  if (weight.size() == 3) shape.insert(shape.begin(), stack.count);
  return shape;
}

// In the form's shape but for ones, or one for a whole stack of experts, none of them negative, NaN or infinite: what
// others fill scales with that never came.
std::vector<float> QuantizedCheckpoint::ScalesOf(const QuantizedLayer& layer, const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.scale];
  const QuantizedForm& form = *layer.layer->quantized_form();
  const Shape expected = ScaleShapeOf(layer, part);
  const std::string where = "layer " + layer.path + ": '" + spec.name + "' expected ";
  const bool one_for_all = form.scales == QuantizedForm::Scales::kTensor && spec.num_elements() == 1;
  const bool readable = spec.dtype == form.scale_dtype || CanCast(spec.dtype, form.scale_dtype);
  if ((WithoutOnes(spec.shape) != WithoutOnes(expected) && !one_for_all) || !readable) {
    throw Error(ErrorCode::kInvalidArgument, where + Describe(form.scale_dtype, expected) + ", got " + Describe(spec));
  }
  std::vector<float> scales = form.scale_dtype == DType::kF32
                                  ? NumbersOf(part.scale)
                                  : ValuesOfBytes(checkpoint_.Tensor(std::size_t{part.scale}));
  if (one_for_all) scales.resize(static_cast<std::size_t>(NumElements(expected)), scales.front());
  CheckScales(scales, Sign::kNotNegative, layer.path, spec.name);
  if (form.has_global_scale) {
    const std::vector<float> global_scales = Nvfp4Parts(checkpoint_, layer).GlobalScales(part);
    const std::size_t of_each = scales.size() / global_scales.size();
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] *= global_scales[i / of_each];
  }
  return scales;
}

}  // namespace layercast
