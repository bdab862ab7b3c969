// Tensors with known bytes, and streams and manifests of them: what tests of the model tree and of plans load.
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
#include "src/tensor/manifest.h"

namespace layercast::testing {

// A list of tensors that own their bytes. Element i of a tensor has the value i + 1 plus a number of its own, in a
// type that can hold it, or arbitrary bytes.
class Weights {
 public:
  // One value for each element, rounded to the tensor's dtype.
  void Add(const TensorSpec& spec, const std::vector<float>& values);
  // Integers counted up from `first`; for F32 these are exact.
  void AddCounting(const TensorSpec& spec, float first);
  // As they are: codes.
  void AddBytes(const TensorSpec& spec, std::vector<std::byte> bytes);
  // Random finite values.
  void AddRandom(const TensorSpec& spec, std::uint32_t seed);

  std::size_t size() const { return tensors_.size(); }
  NamedTensor at(std::size_t index) const;
  const std::vector<std::byte>& bytes(std::size_t index) const { return bytes_[index]; }
  std::vector<std::byte>& bytes(std::size_t index) { return bytes_[index]; }
  const TensorSpec& spec(std::size_t index) const { return tensors_[index]; }

  // In order, or in the order of `indices`.
  std::unique_ptr<WeightsIterator> Stream() const;
  std::unique_ptr<WeightsIterator> Stream(std::span<const std::size_t> indices) const;
  Manifest ToManifest() const;

 private:
  std::vector<TensorSpec> tensors_;
  std::deque<std::vector<std::byte>> bytes_;
};

}  // namespace layercast::testing
