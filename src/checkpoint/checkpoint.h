// A checkpoint on disk as `(name, tensor)`: one safetensors file, or a folder of them with or without
// model.safetensors.index.json. Publishers and cold loads read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// Resource, cheap to copy; immutable, so any thread may read.
class Checkpoint {
 public:
  // Reads headers alone; the tensors' bytes are read when somebody looks at them. Throws kNotFound (no such path, no
  // weights there, a file that the index mentions is missing) and kCorrupt (SurveyCheckpoint says of what), its
  // message listing all problems up to ten.
  static Checkpoint Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  // In checkpoint order: files in natural order, tensors by their offset. Tensor i below is specs()[i].
  const std::vector<TensorSpec>& specs() const;
  std::uint64_t total_bytes() const;
  // Index of the tensor called `name`, or -1.
  std::int64_t Find(std::string_view name) const;

  // As CheckpointSurvey::Tensor: kept alive by its owner, and aligned to its element type.
  NamedTensor Tensor(std::size_t index) const;
  // Throws kNotFound.
  NamedTensor Tensor(std::string_view name) const;
  // Name of the file that holds the tensor.
  std::string FileOf(std::size_t index) const;

  // All tensors in checkpoint order, or those that `order` lists, lazily. May outlive this.
  std::unique_ptr<WeightsIterator> Weights() const;
  std::unique_ptr<WeightsIterator> Weights(std::vector<std::uint32_t> order) const;

 private:
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents);

  std::shared_ptr<const Contents> contents_;  // the other owners: iterators that were handed out, and copies
};

}  // namespace layercast
