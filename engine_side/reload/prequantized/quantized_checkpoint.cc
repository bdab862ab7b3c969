#include "engine_side/reload/prequantized/quantized_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/prequantized/quantized_scales.h"
#include "engine_side/reload/prequantized/scales_of_expert.h"
#include "engine_side/reload/prequantized/zero_points.h"
#include "engine_side/reload/work/checked_dequantize.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {
namespace {

using Way = QuantizedLayer::Way;

const std::uint8_t* CodesOf(const NamedTensor& weight) {
  return reinterpret_cast<const std::uint8_t*>(weight.tensor.data);
}

// Throws what reading the scales and zero points of a part that is to be dequantized would throw, before anything is
// read.
void CheckSpecs(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part) {
  if (part.scale_is_of_stack) {
    CheckScalesOfExpert(checkpoint, layer, part);
  } else {
    QuantizedScales(checkpoint, layer).Check(part);
  }
  if (layer.layer->quantized_form()->has_zero_points) CheckZeroPoints(checkpoint, layer, part);
}

}  // namespace

QuantizedCheckpoint::QuantizedCheckpoint(Checkpoint checkpoint, Module& model, const QuantizationConfig& quantization,
                                         MemoryResource& memory, WorkerPool& pool)
    : checkpoint_(std::move(checkpoint)),
      memory_(memory),
      pool_(pool),
      quantized_(TakeQuantizedLayers(model, checkpoint_.specs(), quantization)) {
  if (const auto& heads = model.heads()) {
    checkpoint_.CheckHeads(heads->num_attention_heads, heads->num_key_value_heads);
  }
  std::vector<bool> replaced(checkpoint_.specs().size());
  for (const QuantizedLayer& layer : quantized_.layers) {
    for (const QuantizedLayer::InputScale& scale : layer.input_scales) {
      for (const std::uint32_t part : scale.parts) {
        QuantizedScales(checkpoint_, layer).CheckNumbers(part);
        replaced[part] = true;
      }
      AddNumber(JoinPath(layer.path, scale.name),
                [this, &layer, &scale] { return QuantizedScales(checkpoint_, layer).Largest(scale); });
    }
    if (layer.way == Way::kDequantize) {
      for (const QuantizedLayer::Part& part : layer.parts) {
        replaced[part.weight] = replaced[part.scale] = true;
        if (layer.layer->quantized_form()->has_global_scale) replaced[part.global_scale] = true;
        if (layer.layer->quantized_form()->has_zero_points) replaced[part.zero_point] = true;
      }
      AddDequantized(layer);
    }
    for (const QuantizedLayer::Part& part : layer.parts) {
      if (replaced[part.scale]) continue;
      if (const auto for_all = ScaleForAll(layer, part)) {
        replaced[*for_all] = true;
        AddScaleOfEach(layer, part, *for_all);
      }
      if (replaced[part.scale]) continue;
      TensorSpec taken = QuantizedScales(checkpoint_, layer).Taken(part);
      if (taken == checkpoint_.specs()[part.scale]) continue;
      replaced[part.scale] = true;
      AddScalesAs(std::move(taken), layer, part);
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
    CheckSpecs(checkpoint_, layer, part);
    Shape shape = checkpoint_.specs()[part.weight].shape;
    shape[shape.size() - (part.transposed ? 2 : 1)] *= layer.layer->quantized_form()->codes_per_element();
    AddMade({part.name, dtype, std::move(shape)},
            [this, &layer, &part, dtype](std::byte* values) { Dequantized(layer, part, dtype, values); });
  }
}

// The tensor with the one scale of a whole stack of experts whose layer takes one for each expert. Empty if the
// checkpoint already has them so.
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
  AddMade({checkpoint_.specs()[for_all].name, DType::kF32, {count}}, [this, &layer, &part, for_all](std::byte* values) {
    const bool global = layer.layer->quantized_form()->has_global_scale;
    if (global) (void)QuantizedScales(checkpoint_, layer).GlobalOf(part);  // throws if it cannot be right
    const std::vector<float> number =
        global ? QuantizedScales(checkpoint_, layer).NumbersOf(for_all) : QuantizedScales(checkpoint_, layer).Of(part);
    const auto bytes = static_cast<std::size_t>(checkpoint_.specs()[part.weight].shape[0]) * sizeof(float);
    for (std::size_t at = 0; at < bytes; at += sizeof(float)) std::memcpy(values + at, number.data(), sizeof(float));
  });
}

void QuantizedCheckpoint::AddScalesAs(TensorSpec spec, const QuantizedLayer& layer, const QuantizedLayer::Part& part) {
  const bool as_numbers = spec.dtype != checkpoint_.specs()[part.scale].dtype;
  AddMade(std::move(spec), [this, &layer, &part, as_numbers](std::byte* values) {
    if (as_numbers) {
      const std::vector<float> numbers = QuantizedScales(checkpoint_, layer).NumbersOf(part.scale);
      std::memcpy(values, numbers.data(), numbers.size() * sizeof(float));
      return;
    }
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
  const auto values = std::make_shared<const Buffer>(
      BufferFor("'" + spec.name + "'", memory_, static_cast<std::size_t>(spec.num_bytes())));
  origin.make(values->data());
  return {spec.name, {spec.dtype, spec.shape, values->data(), {}}, values};
}

void QuantizedCheckpoint::Dequantized(const QuantizedLayer& layer, const QuantizedLayer::Part& part, DType dtype,
                                      std::byte* values) const {
  const NamedTensor codes = checkpoint_.Tensor(std::size_t{part.weight});
  const std::vector<float> scales =
      part.scale_is_of_stack ? ScalesOfExpert(checkpoint_, layer, part) : QuantizedScales(checkpoint_, layer).Of(part);
  const QuantizedForm& form = *layer.layer->quantized_form();
  const std::vector<float> zero_points =
      form.has_zero_points ? ZeroPointsOf(checkpoint_, layer, part) : std::vector<float>();
  MatrixStack stack = MatrixStack::Of(codes.tensor.shape);
  (part.transposed ? stack.rows : stack.cols) *= form.codes_per_element();
  QuantizedWeight weight{.codes = nullptr,
                         .rows = stack.rows,
                         .cols = stack.cols,
                         .scales = {},
                         .block_rows = form.block_rows,
                         .block_cols = form.block_cols,
                         .elements = form.codes,
                         .packed_bits = form.packed_bits,
                         .pairs_rows = part.transposed && form.codes_per_element() > 1};
  if (form.scales != QuantizedForm::Scales::kBlock) {
    const std::int64_t rows = part.transposed ? weight.cols : weight.rows;  // rows of the weight as it is served
    weight.block_rows = form.scales == QuantizedForm::Scales::kTensor ? rows : 1;
    weight.block_cols = part.transposed ? weight.rows : weight.cols;
  }
  if (part.transposed) std::swap(weight.block_rows, weight.block_cols);
  const std::int64_t of_matrix = stack.count == 0 ? 0 : static_cast<std::int64_t>(scales.size()) / stack.count;
  for (std::int64_t i = 0; i < stack.count; ++i) {
    weight.codes = CodesOf(codes) + i * NumBytes(codes.tensor.dtype, codes.tensor.shape) / stack.count;
    weight.scales.assign(scales.begin() + i * of_matrix, scales.begin() + (i + 1) * of_matrix);
    if (form.has_zero_points) weight.zero_points = zero_points;  // never for a stack
    DequantizeChecked(codes.name, i, stack.count, weight, dtype, values + i * NumBytes(dtype, {stack.rows, stack.cols}),
                      pool_);
  }
}

}  // namespace layercast
