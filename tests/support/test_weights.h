// Tensors with known bytes, and streams and manifests of them, for tests of the model tree and of plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast::testing {

// A list of tensors that own their bytes. The values are those that were given, counted, random or arbitrary bytes, as
// each Add says.
class Weights {
 public:
  // Adds a tensor with one value for each element, rounded to the tensor's dtype.
  void Add(const TensorSpec& spec, const std::vector<float>& values);
  // Adds a tensor with integers counted up from `first`. In F32 these are exact.
  void AddCounting(const TensorSpec& spec, float first);
  // Adds a tensor with these bytes as they are, such as codes.
  void AddBytes(const TensorSpec& spec, std::vector<std::byte> bytes);
  // Adds a tensor with random finite values.
  void AddRandom(const TensorSpec& spec, std::uint32_t seed);

  std::size_t size() const { return tensors_.size(); }
  NamedTensor at(std::size_t index) const;
  const std::vector<std::byte>& bytes(std::size_t index) const { return bytes_[index]; }
  std::vector<std::byte>& bytes(std::size_t index) { return bytes_[index]; }
  const TensorSpec& spec(std::size_t index) const { return tensors_[index]; }

  // Streams the tensors in their order, or in the order of `indices`.
  std::unique_ptr<WeightsIterator> Stream() const;
  std::unique_ptr<WeightsIterator> Stream(std::span<const std::size_t> indices) const;
  Manifest ToManifest() const;

 private:
  std::vector<TensorSpec> tensors_;
  std::deque<std::vector<std::byte>> bytes_;
};

}  // namespace layercast::testing
