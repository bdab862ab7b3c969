#include "engine_side/engine/captured_weights.h"

#include <algorithm>

#include "layercast/error.h"
#include "src/base/check.h"

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

std::int64_t Blocks(std::int64_t count) {
  constexpr auto kSize = static_cast<std::int64_t>(WeightView::kBlockSize);
  return (count + kSize - 1) / kSize;
}

}  // namespace

CapturedWeights::CapturedWeights(std::span<const CapturedBuffer> buffers) {
  for (const CapturedBuffer& buffer : buffers) by_name_.emplace(buffer.name, &buffer);
}

WeightView CapturedWeights::Find(const Module& layer, const std::string& path, std::string_view parameter) {
  const auto found = std::ranges::find(layer.parameters(), parameter,
                                       [](const Parameter& p) { return std::string_view(p.spec.name); });
  LAYERCAST_CHECK(found != layer.parameters().end());
  const TensorSpec& spec = found->spec;
  const std::string name = path + "." + spec.name;
  if (spec.shape.size() == 2) return FindMatrix(name, spec);
  LAYERCAST_CHECK(spec.shape.size() == 1);
  const CapturedBuffer& buffer = Get(name, spec.dtype, spec.shape);
  return {.values = buffer.address, .dtype = spec.dtype, .rows = 1, .cols = static_cast<std::size_t>(spec.shape[0])};
}

LinearWeights CapturedWeights::Linear(const Module& layer, const std::string& path) {
  LinearWeights linear{Find(layer, path), std::nullopt};
  if (std::ranges::count(layer.parameters(), "bias", [](const Parameter& p) { return p.spec.name; }) > 0) {
    linear.bias = Find(layer, path, "bias");
  }
  return linear;
}

WeightView CapturedWeights::FindMatrix(const std::string& name, const TensorSpec& spec) {
  const std::int64_t rows = spec.shape[0];
  const std::int64_t cols = spec.shape[1];
  WeightView view{.dtype = spec.dtype, .rows = static_cast<std::size_t>(rows), .cols = static_cast<std::size_t>(cols)};
  const CapturedBuffer* scale = Lookup(name + "_scale");
  if (scale != nullptr) {
    const bool whole = scale->shape.size() == 1;
    view.scale = whole ? WeightView::Scale::kTensor : WeightView::Scale::kRow;
    view.scales = Get(scale->name, DType::kF32, whole ? Shape{1} : Shape{rows, 1}).address;
  } else if (Lookup(name + "_scale_inv") != nullptr) {
    view.scale = WeightView::Scale::kBlock;
    view.scales = Get(name + "_scale_inv", DType::kF32, {Blocks(rows), Blocks(cols)}).address;
  }
  if (view.scale != WeightView::Scale::kNone) view.dtype = DType::kF8E4M3;
  view.values = Get(name, view.dtype, spec.shape).address;
  return view;
}

void CapturedWeights::CheckAllUsed() const {
  for (const auto& [name, buffer] : by_name_) {
    if (used_.contains(name)) continue;
    throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass does not know what to do with buffer '" +
                                             std::string(name) + "' " + Describe(buffer->dtype, buffer->shape));
  }
}

const CapturedBuffer* CapturedWeights::Lookup(const std::string& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const CapturedBuffer& buffer = *found->second;
  if (buffer.device.kind != Device::Kind::kHost) {
    throw Error(ErrorCode::kUnsupported, "the forward pass on CPU cannot read '" + name + "', which is on a GPU");
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
