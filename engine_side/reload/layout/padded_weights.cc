#include "engine_side/reload/layout/padded_weights.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/error.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

// A tensor, and the memory that an engine should hold it in.
struct Laid {
  Shape tensor;
  Shape memory;  // as the engine describes it
  bool transposed = false, column_major = false;

  bool IsPlain() const { return memory == tensor && !transposed && !column_major; }
};
using LaidByName = std::map<std::string, Laid>;

void CheckAlignments(const WeightLayout& layout) {
  for (const std::int64_t alignment : {layout.row_alignment, layout.column_alignment}) {
    if (alignment >= 1) continue;
    throw Error(ErrorCode::kInvalidArgument,
                "the layout of weights: expected alignments of at least 1, got " + std::to_string(alignment));
  }
}

std::vector<std::int64_t> StridesOf(const CapturedBuffer& buffer) {
  if (!buffer.strides.empty()) return buffer.strides;
  std::vector<std::int64_t> strides(buffer.shape.size(), 1);
  for (std::size_t d = strides.size(); d-- > 1;) strides[d - 1] = strides[d] * buffer.shape[d];
  return strides;
}

void SwapLastTwo(std::vector<std::int64_t>& dimensions) {
  std::swap(dimensions[dimensions.size() - 2], dimensions.back());
}

bool IsColumnMajor(const CapturedBuffer& buffer) {
  const std::vector<std::int64_t> strides = StridesOf(buffer);
  const std::int64_t column = buffer.shape[strides.size() - 2];
  return (column <= 1 || strides[strides.size() - 2] == 1) && strides.back() >= column;
}

// The part of the buffer that is the tensor. Empty if the buffer is not laid out so.
std::optional<CapturedBuffer> TensorIn(const CapturedBuffer& buffer, const Laid& laid) {
  if (buffer.shape != laid.memory || (laid.column_major && !IsColumnMajor(buffer))) return std::nullopt;
  if (laid.IsPlain()) return buffer;
  CapturedBuffer tensor = buffer;
  tensor.strides = StridesOf(buffer);
  if (laid.transposed) SwapLastTwo(tensor.strides);
  tensor.shape = laid.tensor;
  return tensor;
}

// How each kernel tensor is laid out. The values are the first kernel tensor of a weight, and only they can be
// transposed or column-major.
LaidByName LaidOut(const LoadPlan& plan, const LayerRecipes& recipes, const WeightLayout& layout) {
  LaidByName laid;
  const std::vector<Shape> padded = PaddedShapesOf(plan, recipes, layout);
  std::size_t next = 0;
  for (const PlannedLayer& layer : plan.layers()) {
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      const PlannedParameter& parameter = plan.parameters()[layer.first_parameter + i];
      bool values = parameter.quantize;
      for (const TensorSpec& spec : KernelTensorsOf(parameter, recipes)) {
        Laid one{spec.shape, padded[next++], values && layout.transposed, values && layout.column_major};
        if (one.transposed) SwapLastTwo(one.memory);
        laid.emplace(spec.name, std::move(one));
        values = false;
      }
    }
    next += layer.derived.size();
  }
  return laid;
}

std::string Describe(const Laid& laid) {
  return ToString(laid.memory) + (laid.column_major ? " with elements of a column one behind the other" : "") +
         " for [rows, columns] of " + ToString(laid.tensor);
}

}  // namespace

std::vector<Shape> PaddedShapesOf(const LoadPlan& plan, const LayerRecipes& recipes, const WeightLayout& layout) {
  CheckAlignments(layout);
  std::vector<Shape> shapes;
  for (const PlannedLayer& layer : plan.layers()) {
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      PlannedParameter parameter = plan.parameters()[layer.first_parameter + i];
      if (parameter.quantize) {
        Shape& shape = parameter.spec.shape;
        shape[shape.size() - 2] = RoundUp(shape[shape.size() - 2], layout.row_alignment);
        shape.back() = RoundUp(shape.back(), layout.column_alignment);
      }
      for (TensorSpec& spec : KernelTensorsOf(parameter, recipes)) shapes.push_back(std::move(spec.shape));
    }
    for (const DerivedTensor& derived : layer.derived) shapes.push_back(derived.spec.shape);
  }
  return shapes;
}

CapturedBuffers TensorsIn(CapturedBuffers captured, const Module& model, const QuantizationConfig& quantization) {
  if (quantization.layout == WeightLayout()) return captured;
  const LayerRecipes recipes(quantization.recipe, {.power_of_two_scales = quantization.power_of_two_scales});
  const auto laid = std::make_shared<const LaidByName>(  // shared by the views of it
      LaidOut(LoadPlan::WithoutTensors(model), recipes, quantization.layout));
  const auto laid_out = [laid](const CapturedBuffer& buffer) {
    const auto found = laid->find(buffer.name);
    return found == laid->end() ? nullptr : &found->second;
  };
  std::string problems;
  for (const CapturedBuffer& buffer : captured.buffers()) {
    const Laid* wanted = laid_out(buffer);
    if (wanted == nullptr || TensorIn(buffer, *wanted)) continue;
    problems += "\n  captured buffer '" + buffer.name + "': expected " + Describe(*wanted) + ", got " +
                ToString(buffer.shape) + " with strides " + ToString(StridesOf(buffer));
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the engine's captured buffers do not have the layout that it gave for its weights:" + problems);
  }
  return captured.SeenAs([laid_out](CapturedBuffer buffer) {
    const Laid* wanted = laid_out(buffer);
    return wanted == nullptr ? buffer : TensorIn(buffer, *wanted).value_or(buffer);
  });
}

std::vector<CapturedBuffer> PaddingOf(const CapturedBuffer& tensor, const Shape& padded) {
  std::vector<CapturedBuffer> padding;
  for (std::size_t d = 0; d < padded.size(); ++d) {
    if (padded[d] == tensor.shape[d]) continue;
    CapturedBuffer beyond = tensor;  // inside the tensor in dimensions before d, beyond it in d
    for (std::size_t inner = d + 1; inner < padded.size(); ++inner) beyond.shape[inner] = padded[inner];
    beyond.shape[d] = padded[d] - tensor.shape[d];
    beyond.address += tensor.shape[d] * tensor.strides[d] * BitsPerElement(tensor.dtype) / 8;
    padding.push_back(std::move(beyond));
  }
  return padding;
}

}  // namespace layercast
