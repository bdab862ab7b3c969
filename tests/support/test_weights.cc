#include "tests/support/test_weights.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "src/tensor/cast.h"

namespace layercast::testing {
namespace {

std::vector<std::byte> BytesOf(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(NumBytes(dtype, {static_cast<std::int64_t>(values.size())})));
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  if (dtype == DType::kF32) {
    std::copy_n(source, bytes.size(), bytes.begin());
  } else {
    Cast(DType::kF32, source, dtype, bytes.data(), values.size());
  }
  return bytes;
}

}  // namespace

void Weights::Add(const TensorSpec& spec, const std::vector<float>& values) {
  tensors_.push_back(spec);
  bytes_.push_back(BytesOf(values, spec.dtype));
}

void Weights::AddCounting(const TensorSpec& spec, float first) {
  std::vector<float> values(static_cast<std::size_t>(spec.num_elements()));
  std::iota(values.begin(), values.end(), first);
  Add(spec, values);
}

void Weights::AddBytes(const TensorSpec& spec, std::vector<std::byte> bytes) {
  tensors_.push_back(spec);
  bytes_.push_back(std::move(bytes));
}

void Weights::AddRandom(const TensorSpec& spec, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(spec.num_elements()));
  for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-30F;
  Add(spec, values);
}

NamedTensor Weights::at(std::size_t index) const {
  const TensorSpec& spec = tensors_.at(index);
  return {spec.name, {spec.dtype, spec.shape, bytes_[index].data(), {}}, nullptr};
}

std::unique_ptr<WeightsIterator> Weights::Stream() const {
  std::vector<std::size_t> all(size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return Stream(all);
}

std::unique_ptr<WeightsIterator> Weights::Stream(std::span<const std::size_t> indices) const {
  std::vector<NamedTensor> tensors;
  for (const std::size_t index : indices) tensors.push_back(at(index));
  return MakeWeightsIterator(std::move(tensors));
}

Manifest Weights::ToManifest() const { return Manifest::OfSpecs("test", 0, tensors_); }

}  // namespace layercast::testing
