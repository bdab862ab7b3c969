#include "engine_side/reload/sources/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "engine_side/reload/sources/walk_source.h"
#include "src/base/digest/digest.h"
#include "src/tensor/cast.h"
#include "src/tensor/strided_copy.h"

namespace layercast {
namespace {

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15;  // of SplitMix64: 2^64 over the golden ratio

// SplitMix64's mixing: element i of a stream is Mix(seed + i * kStep), whoever asks for it.
std::uint64_t Mix(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
  return bits ^ (bits >> 31);
}

// A value made from the upper 24 bits, which fp32 holds exactly.
float Value(std::uint64_t bits) {
  const auto steps = static_cast<std::int64_t>(bits >> 40) - (std::int64_t{1} << 23);
  return (static_cast<float>(steps) + 0.5F) * 0x1p-23F * kDummyMagnitude;
}

// Ranks hold different values, and no checkpoint has them, so the version is named by its seed alone.
class DummySource final : public WalkSource {
 public:
  explicit DummySource(std::uint64_t seed) : seed_(seed) {}

  Form form() const override { return Form::kParameters; }

  Opened Open(const SourceContext& context) override {
    const Version version = Manifest(kLineage, seed_, {}).version();
    context.report.channel = kLineage;
    context.report.version = version;
    TakeInFullPrecision(context.model);
    const LoadPlan plan = LoadPlan::WithoutTensors(context.model);
    std::vector<TensorSpec> specs;
    for (const PlannedParameter& parameter : plan.parameters()) specs.push_back(parameter.spec);
    return {.manifest = Manifest::OfSpecs(kLineage, seed_, specs), .in_order = true, .version = version};
  }

 protected:
  std::unique_ptr<WeightsIterator> Walk(const SourceContext& context, const LoadPlan& plan) override {
    return std::make_unique<DummyWeights>(plan, context.parallel.tp_rank, seed_);
  }

 private:
  static constexpr const char* kLineage = "dummy";
  const std::uint64_t seed_;
};

}  // namespace

std::optional<NamedTensor> DummyWeights::Next() {
  if (next_ == plan_.parameters().size()) return std::nullopt;
  const PlannedParameter& parameter = plan_.parameters()[next_++];
  values_ = Buffer(memory_, std::max<std::size_t>(static_cast<std::size_t>(parameter.spec.num_bytes()), 1));
  Fill(parameter);
  return NamedTensor{
      .name = parameter.spec.name,
      .tensor = {.dtype = parameter.spec.dtype, .shape = parameter.spec.shape, .data = values_.data(), .device = {}},
      .owner = nullptr};
}

void DummyWeights::Fill(const PlannedParameter& parameter) {
  const TensorSpec& spec = parameter.spec;
  std::memset(values_.data(), 0, values_.size());
  if (!CanCast(DType::kF32, spec.dtype)) return;
  const int part = parameter.shard_axis == ShardAxis::kNone ? 0 : tp_rank_;
  const std::uint64_t stream =
      DigestOf(std::as_bytes(std::span(spec.name))).low ^ Mix(seed_) ^ Mix(static_cast<std::uint64_t>(part) * kStep);
  const auto width = static_cast<std::size_t>(BitsPerElement(spec.dtype)) / 8;
  const auto elements = static_cast<std::size_t>(spec.num_elements());
  std::array<float, 1024> block{};
  for (std::size_t first = 0; first < elements; first += block.size()) {
    const std::size_t count = std::min(block.size(), elements - first);
    for (std::size_t i = 0; i < count; ++i) {
      const float value = Value(Mix(stream + (first + i) * kStep));
      block[i] = parameter.sign != Sign::kAny ? std::abs(value) : value;
    }
    Cast(DType::kF32, reinterpret_cast<const std::byte*>(block.data()), spec.dtype, values_.data() + first * width,
         count);
  }
  for (const Box& padding : parameter.padding) ZeroBox(spec, padding, values_.data());
}

ReloadSource FromDummy(std::uint64_t seed) { return ReloadSource(std::make_unique<DummySource>(seed)); }

}  // namespace layercast
