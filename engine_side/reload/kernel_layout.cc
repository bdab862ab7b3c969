#include "engine_side/reload/kernel_layout.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine_side/quant/kernel_tensors.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

// Empty when the buffer can hold the tensor.
std::string Mismatch(const TensorSpec& spec, const CapturedBuffer* buffer) {
  if (buffer == nullptr) return "the engine has no captured buffer '" + spec.name + "' (" + Describe(spec) + ")";
  if (buffer->dtype == spec.dtype && buffer->shape == spec.shape) return "";
  return "captured buffer '" + spec.name + "': expected " + Describe(spec) + ", got " +
         Describe(buffer->dtype, buffer->shape);
}

}  // namespace

std::vector<TensorSpec> KernelTensorsOf(const PlannedParameter& parameter, const Recipe& recipe) {
  if (!parameter.quantize) return {parameter.spec};
  return KernelTensorsOf(parameter.spec, recipe);
}

KernelLayout::KernelLayout(const LoadPlan& plan, const Recipe& recipe, const CapturedBuffers& captured) {
  std::string problems;
  std::vector<KernelTensor> tensors;
  std::set<std::string_view> written;
  for (const PlannedParameter& parameter : plan.parameters()) {
    first_.push_back(static_cast<std::uint32_t>(tensors.size()));
    for (TensorSpec& spec : KernelTensorsOf(parameter, recipe)) {
      const CapturedBuffer* buffer = captured.Find(spec.name);
      const std::string mismatch = Mismatch(spec, buffer);
      if (!mismatch.empty()) {
        problems += "\n  " + mismatch;
        if (buffer != nullptr) written.insert(buffer->name);
        continue;
      }
      written.insert(buffer->name);
      const auto bytes = static_cast<std::uint64_t>(spec.num_bytes());
      tensors.push_back({std::move(spec), *buffer, staged_bytes_});
      staged_bytes_ += RoundUp<std::uint64_t>(bytes, kMemoryAlignment);
    }
  }
  first_.push_back(static_cast<std::uint32_t>(tensors.size()));
  tensors_ = std::make_shared<const std::vector<KernelTensor>>(std::move(tensors));
  for (const CapturedBuffer& buffer : captured.buffers()) {
    if (!written.contains(buffer.name)) problems += "\n  captured buffer '" + buffer.name + "' belongs to no parameter";
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the engine's captured buffers do not fit the model under recipe '" +
                                                 std::string(recipe.name()) + "':" + problems);
  }
}

KernelLayout KernelLayout::For(const LoadPlan& plan, const Recipe& recipe) const {
  KernelLayout other = *this;
  other.first_.clear();
  std::uint32_t next = 0;
  for (const PlannedParameter& parameter : plan.parameters()) {
    other.first_.push_back(next);
    for (const TensorSpec& spec : KernelTensorsOf(parameter, recipe)) {
      LAYERCAST_CHECK(next < tensors().size() && tensors()[next].spec == spec);
      ++next;
    }
  }
  LAYERCAST_CHECK(next == tensors().size());
  other.first_.push_back(next);
  return other;
}

std::span<const KernelTensor> KernelLayout::TensorsOf(std::uint32_t parameter) const {
  return std::span(tensors()).subspan(first_[parameter], first_[parameter + 1] - first_[parameter]);
}

std::span<const KernelTensor> KernelLayout::TensorsOf(const PlannedLayer& layer) const {
  const std::uint32_t first = first_[layer.first_parameter];
  return std::span(tensors()).subspan(first, first_[layer.first_parameter + layer.num_parameters] - first);
}

}  // namespace layercast
