#include "engine_side/engine/captured_weights.h"

#include <algorithm>
#include <array>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/quantized_form.h"
#include "src/base/check.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

bool IsRowMajor(const CapturedBuffer& buffer) {
  if (buffer.strides.empty()) return true;
  std::int64_t expected = 1;
  for (std::size_t d = buffer.shape.size(); d-- > 0;) {
    if (buffer.shape[d] != 1 && buffer.strides[d] != expected) return false;
    expected *= buffer.shape[d];
  }
  return true;
}

std::string NameOf(const Device& device) {
  return device.kind == Device::Kind::kHost ? "CPU" : "GPU " + std::to_string(device.index);
}

// Whether a buffer is served but not computed with: it belongs to a draft model, or is a scale of something that this
// engine keeps in full precision.
bool IsHeldAlone(std::string_view name) {
  return name.starts_with(kDraftPrefix) || name.ends_with(kInputScale) || name.ends_with(".attn.k_scale") ||
         name.ends_with(".attn.v_scale");
}

// Null if the layer has no such parameter.
const TensorSpec* FindSpec(const Module& layer, std::string_view parameter) {
  const auto found = std::ranges::find(layer.parameters(), parameter,
                                       [](const Parameter& p) { return std::string_view(p.spec.name); });
  return found == layer.parameters().end() ? nullptr : &found->spec;
}

const TensorSpec& SpecOf(const Module& layer, std::string_view parameter) {
  const TensorSpec* spec = FindSpec(layer, parameter);
  LAYERCAST_CHECK(spec != nullptr);
  return *spec;
}

// The name of the kernel tensor of a weight that is called `tensor` if the weight is called "weight".
std::string Beside(const std::string& weight, std::string_view tensor) {
  return weight + std::string(tensor.substr(kWeightName.size()));
}

// The recipe that wrote a weight, whose kernel tensors `find` finds by the names that recipes give them; null if there
// is none. Recipes whose tensors have the same names differ in types, or in whether there is one scale: it is the one
// that is like the tensors in most.
template <class Find>
const RecipeRow* RecipeOf(const Find& find) {
  const CapturedBuffer* const values = find(kWeightName);
  const bool has_global = find(QuantizedForm::kGlobalScale) != nullptr;
  const RecipeRow* found = nullptr;
  std::array<bool, 4> most{};
  for (const RecipeRow& row : RecipeRows()) {
    const CapturedBuffer* const scales = find(row.scales);
    if (row.make != MakeOfFormat || (scales == nullptr && !(row.format.has_global_scale && has_global))) continue;
    const std::array<bool, 4> alike = {scales != nullptr && row.Scales(1, 1).dtype == scales->dtype,
                                       row.format.has_global_scale == has_global,
                                       scales != nullptr && (row.format.block_rows == 0) == (scales->shape.size() == 1),
                                       values != nullptr && values->dtype == row.Codes(1, 1).dtype};
    if (found != nullptr && alike <= most) continue;
    found = &row;
    most = alike;
  }
  return found;
}

}  // namespace

CapturedWeights::CapturedWeights(std::span<const CapturedBuffer> buffers, const Device& device) : device_(device) {
  for (const CapturedBuffer& buffer : buffers) by_name_.emplace(buffer.name, &buffer);
}

WeightView CapturedWeights::Find(const Module& layer, const std::string& path, std::string_view parameter) {
  const TensorSpec& spec = SpecOf(layer, parameter);
  const std::string name = path + "." + spec.name;
  if (spec.shape.size() == 2) return FindMatrix(name, spec);
  const CapturedBuffer& buffer = Get(name, spec.dtype, spec.shape);
  const auto rows = static_cast<std::size_t>(spec.shape.size() == 1 ? 1 : spec.shape[0]);
  return {.values = buffer.address,
          .dtype = spec.dtype,
          .rows = rows,
          .cols = static_cast<std::size_t>(spec.num_elements()) / rows};
}

WeightView CapturedWeights::FindDerived(const Module& layer, const std::string& path, std::string_view name) {
  const auto found =
      std::ranges::find(layer.derived(), name, [](const DerivedTensor& d) { return std::string_view(d.spec.name); });
  LAYERCAST_CHECK(found != layer.derived().end());
  for (const TensorSpec& source : found->sources) {
    const std::string whole = path + "." + source.name;
    for (const auto& [buffer, captured] : by_name_) {
      if (buffer == whole || buffer.starts_with(whole + "_scale")) used_.insert(buffer);
    }
  }
  const TensorSpec& spec = found->spec;
  const auto cols = static_cast<std::size_t>(spec.shape.back());
  return {.values = Get(path + "." + spec.name, spec.dtype, spec.shape).address,
          .dtype = spec.dtype,
          .rows = static_cast<std::size_t>(spec.num_elements()) / cols,
          .cols = cols};
}

LinearWeights CapturedWeights::Linear(const Module& layer, const std::string& path) {
  LinearWeights linear{Find(layer, path), std::nullopt};
  if (FindSpec(layer, "bias") != nullptr) linear.bias = Find(layer, path, "bias");
  return linear;
}

std::vector<LinearWeights> CapturedWeights::LinearStack(const Module& layer, const std::string& path,
                                                        const std::string& name) {
  const TensorSpec& stack = SpecOf(layer, name + "_weight");
  LAYERCAST_CHECK(stack.shape.size() == 3);
  const TensorSpec matrix{stack.name, stack.dtype, {stack.shape[1], stack.shape[2]}};
  const TensorSpec* bias = FindSpec(layer, name + "_bias");
  std::vector<LinearWeights> linears;
  for (std::int64_t i = 0; i < stack.shape[0]; ++i) {
    const InStack place{i, stack.shape[0]};
    linears.push_back({FindMatrix(path + "." + stack.name, matrix, place), std::nullopt});
    if (bias == nullptr) continue;
    const Shape vector = {bias->shape[1]};
    linears.back().bias = WeightView{.values = AddressOf(path + "." + bias->name, bias->dtype, vector, place),
                                     .dtype = bias->dtype,
                                     .rows = 1,
                                     .cols = static_cast<std::size_t>(vector[0])};
  }
  return linears;
}

WeightView CapturedWeights::FindMatrix(const std::string& name, const TensorSpec& matrix, const InStack& place) {
  const std::int64_t rows = matrix.shape[0];
  const std::int64_t cols = matrix.shape[1];
  WeightView view{
      .dtype = matrix.dtype, .rows = static_cast<std::size_t>(rows), .cols = static_cast<std::size_t>(cols)};
  const RecipeRow* recipe = RecipeOf([&](std::string_view tensor) { return Lookup(Beside(name, tensor)); });
  TensorSpec codes = matrix;
  if (recipe != nullptr) {
    const CodeFormat& format = recipe->format;
    codes = recipe->Codes(rows, cols);
    view.dtype = format.elements;
    const std::string scales = Beside(name, recipe->scales);
    const DType stored = recipe->Scales(rows, cols).dtype;
    if (format.block_rows == 0) {
      view.scale = {.scales = AddressOf(scales, stored, {1}, place), .rows = view.rows, .cols = view.cols};
    } else {
      view.scale = Scales(scales, stored, matrix.shape, {format.block_rows, format.BlockColsOf(cols)}, place);
    }
    view.scale.dtype = format.scales;
    if (format.has_global_scale) {
      view.scale.global = AddressOf(Beside(name, QuantizedForm::kGlobalScale), DType::kF32, {1}, place);
    }
  }
  view.values = AddressOf(name, codes.dtype, codes.shape, place);
  return view;
}

ScaleGrid CapturedWeights::Scales(const std::string& name, DType dtype, const Shape& weight, const Shape& block,
                                  const InStack& place) {
  const Shape shape = {CeilDivide(weight[0], block[0]), CeilDivide(weight[1], block[1])};
  return {.scales = AddressOf(name, dtype, shape, place),
          .dtype = dtype,
          .rows = static_cast<std::size_t>(block[0]),
          .cols = static_cast<std::size_t>(block[1])};
}

// Where a single matrix has one number, a stack has a vector of them.
const std::byte* CapturedWeights::AddressOf(const std::string& name, DType dtype, const Shape& shape,
                                            const InStack& place) {
  if (place.count == 0) return Get(name, dtype, shape).address;
  Shape stacked = shape == Shape{1} ? Shape{} : shape;
  stacked.insert(stacked.begin(), place.count);
  return Get(name, dtype, stacked).address + place.index * NumBytes(dtype, shape);
}

void CapturedWeights::CheckAllUsed() const {
  for (const auto& [name, buffer] : by_name_) {
    if (used_.contains(name) || IsHeldAlone(name)) continue;
    if (NumElements(buffer->shape) == 0) continue;  // a rank may have no experts
    throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass does not know what to do with buffer '" +
                                             std::string(name) + "' " + Describe(buffer->dtype, buffer->shape));
  }
}

const CapturedBuffer* CapturedWeights::Lookup(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const CapturedBuffer& buffer = *found->second;
  if (buffer.device != device_) {
    throw Error(ErrorCode::kUnsupported, "the forward pass on " + NameOf(device_) + " cannot read '" + name +
                                             "', which is on " + NameOf(buffer.device));
  }
  if (!IsRowMajor(buffer)) {
    throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass reads contiguous buffers alone; '" + name +
                                             "' " + Describe(buffer.dtype, buffer.shape) + " is strided");
  }
  used_.insert(found->first);
  return &buffer;
}

const CapturedBuffer& CapturedWeights::Get(const std::string& name, DType dtype, const Shape& shape) {
  const CapturedBuffer* buffer = Lookup(name);
  if (buffer == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "the engine has no buffer '" + name + "', expected " + Describe(dtype, shape));
  }
  if (buffer->dtype != dtype || buffer->shape != shape) {
    throw Error(ErrorCode::kInvalidArgument, "buffer '" + name + "' expected " + Describe(dtype, shape) + ", got " +
                                                 Describe(buffer->dtype, buffer->shape));
  }
  return *buffer;
}

}  // namespace layercast
