#include "engine_side/reload/layout/kernel_layout.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/layout/padded_weights.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/digest/digest.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

// Says why the buffer cannot hold the tensor. Empty if it can.
std::string Mismatch(const TensorSpec& spec, const CapturedBuffer* buffer) {
  if (buffer == nullptr) return "the engine has no captured buffer '" + spec.name + "' (" + Describe(spec) + ")";
  if (buffer->dtype == spec.dtype && buffer->shape == spec.shape) return "";
  return "captured buffer '" + spec.name + "': expected " + Describe(spec) + ", got " +
         Describe(buffer->dtype, buffer->shape);
}

// Which values a kernel tensor's elements may have.
struct Allowed {
  Sign sign = Sign::kAny;
  bool powers_of_two = false;
};

// The values that each kernel tensor of the plan may have, in order. The kernel tensors of a weight are its codes, and
// then their scales.
std::vector<Allowed> AllowedOf(const LoadPlan& plan, const LayerRecipes& recipes) {
  std::vector<Allowed> all;
  for (const PlannedLayer& layer : plan.layers()) {
    for (const PlannedParameter& parameter : plan.ParametersOf(layer)) {
      all.push_back({parameter.sign});
      const bool rounds = parameter.quantize && recipes.Of(parameter).options().power_of_two_scales;
      all.insert(all.end(), KernelTensorsOf(parameter, recipes).size() - 1, {Sign::kNotNegative, rounds});
    }
    all.insert(all.end(), layer.derived.size(), Allowed());
  }
  return all;
}

TensorSpec FullSpec(const PlannedLayer& layer, const DerivedTensor& derived) {
  return {JoinPath(layer.path, derived.spec.name), derived.spec.dtype, derived.spec.shape};
}

}  // namespace

std::vector<TensorSpec> KernelTensorsOf(const PlannedParameter& parameter, const LayerRecipes& recipes) {
  if (!parameter.quantize) return {parameter.spec};
  try {
    return KernelTensorsOf(parameter.spec, recipes.Of(parameter));
  } catch (const Error& error) {
    throw Error(error.code(), "'" + parameter.spec.name + "': " + error.what());
  }
}

std::vector<TensorSpec> KernelTensorsOf(const LoadPlan& plan, const LayerRecipes& recipes) {
  std::vector<TensorSpec> tensors;
  for (const PlannedLayer& layer : plan.layers()) {
    for (const PlannedParameter& parameter : plan.ParametersOf(layer)) {
      for (TensorSpec& spec : KernelTensorsOf(parameter, recipes)) tensors.push_back(std::move(spec));
    }
    for (const DerivedTensor& derived : layer.derived) tensors.push_back(FullSpec(layer, derived));
  }
  return tensors;
}

KernelLayout::KernelLayout(const LoadPlan& plan, const LayerRecipes& recipes, const CapturedBuffers& captured,
                           const WeightLayout& weights)
    : num_layers_(plan.layers().size()) {
  std::string problems;
  std::vector<KernelTensor> tensors;
  std::set<std::string_view> written;
  const std::vector<Shape> padded = PaddedShapesOf(plan, recipes, weights);
  const std::vector<Allowed> all_allowed = AllowedOf(plan, recipes);
  std::size_t next = 0;
  for (TensorSpec& spec : KernelTensorsOf(plan, recipes)) {
    const Shape& memory = padded[next];
    const Allowed allowed = all_allowed[next++];
    const CapturedBuffer* buffer = captured.Find(spec.name);
    const std::string mismatch = Mismatch(spec, buffer);
    if (buffer != nullptr) written.insert(buffer->name);
    if (!mismatch.empty()) {
      problems += "\n  " + mismatch;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(spec.num_bytes());
    std::uint64_t& staged = staged_bytes_[static_cast<std::size_t>(buffer->device.kind)];
    tensors.push_back(
        {std::move(spec), *buffer, PaddingOf(*buffer, memory), bytes, staged, allowed.sign, allowed.powers_of_two});
    staged += RoundUp<std::uint64_t>(bytes, kMemoryAlignment);
  }
  for (const CapturedBuffer& buffer : captured.buffers()) {
    if (!written.contains(buffer.name)) problems += "\n  captured buffer '" + buffer.name + "' belongs to no parameter";
  }
  if (!problems.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the engine's captured buffers do not fit the model under recipe '" +
                                                 std::string(recipes.name()) + "':" + problems);
  }
  tensors_ = std::make_shared<const std::vector<KernelTensor>>(std::move(tensors));
  by_name_.resize(tensors_->size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::ranges::sort(by_name_, {}, [this](std::size_t i) -> const std::string& { return (*tensors_)[i].spec.name; });
  FindRanges(plan, recipes);
}

KernelLayout KernelLayout::For(const LoadPlan& plan, const LayerRecipes& recipes) const {
  KernelLayout other = *this;
  other.FindRanges(plan, recipes);
  return other;
}

void KernelLayout::FindRanges(const LoadPlan& plan, const LayerRecipes& recipes) {
  ranges_.clear();
  std::size_t next = 0;
  const auto pass = [&](const TensorSpec& spec) {
    LAYERCAST_CHECK(next < tensors().size() && tensors()[next].spec == spec);
    ++next;
  };
  for (const PlannedLayer& layer : plan.layers()) {
    for (const PlannedParameter& parameter : plan.ParametersOf(layer)) {
      const std::size_t first = next;
      for (const TensorSpec& spec : KernelTensorsOf(parameter, recipes)) pass(spec);
      ranges_.push_back({first, next - first});
    }
    for (const DerivedTensor& derived : layer.derived) pass(FullSpec(layer, derived));
  }
  LAYERCAST_CHECK(next == tensors().size());
}

std::span<const KernelTensor> KernelLayout::TensorsOf(std::uint32_t parameter) const {
  return std::span(tensors()).subspan(ranges_[parameter].first, ranges_[parameter].count);
}

std::span<const KernelTensor> KernelLayout::TensorsOf(const PlannedLayer& layer) const {
  const Range& last = ranges_[layer.first_parameter + layer.num_parameters - 1];
  const std::size_t first = ranges_[layer.first_parameter].first;
  return std::span(tensors()).subspan(first, last.first + last.count + layer.derived.size() - first);
}

std::span<const KernelTensor> KernelLayout::DerivedOf(const PlannedLayer& layer) const {
  return TensorsOf(layer).last(layer.derived.size());
}

Digest DigestOf(const KernelLayout& layout) {
  std::string lines;
  for (const KernelTensor& tensor : layout.tensors()) {
    lines += tensor.spec.name + " " + Describe(tensor.spec) + " at " + std::to_string(tensor.staging_offset) + "\n";
  }
  return DigestOf(std::as_bytes(std::span(lines)));
}

}  // namespace layercast
