// A checkpoint on disk as `(name, tensor)`, in any format that has a loader: a folder, with or without an index, or one
// file. Publishers and cold loads read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// The lineage of a checkpoint that was given none: its folder's name, escaped, since a folder may have any name.
std::string DefaultLineage(const std::filesystem::path& path);

// Resource, but cheap to copy; immutable, so any thread may read.
class Checkpoint {
 public:
  // Reads headers alone; the tensors' bytes are read when somebody looks at them. Throws kNotFound (no such path, no
  // weights there, a file that the index mentions is missing), kCorrupt for the problems that SurveyCheckpoint finds,
  // listing up to ten, and what LoadFormatNamed throws.
  static Checkpoint Open(const CheckpointSource& source);
  static Checkpoint Open(const std::filesystem::path& path) { return Open(CheckpointSource{.path = path.native()}); }

  const CheckpointSource& source() const;
  // The tensors in checkpoint order: files in natural order, tensors by their offset. Tensor(i) has specs()[i].
  const std::vector<TensorSpec>& specs() const;
  std::uint64_t total_bytes() const;
  // The index of the tensor called `name`, or -1.
  std::int64_t Find(std::string_view name) const;

  // Throws kInvalidArgument, naming file, field and both numbers, if the files name other numbers of heads than the
  // model has that they are loaded into. Files of secondary sources do not count.
  void CheckHeads(std::int64_t num_attention_heads, std::int64_t num_key_value_heads) const;

  // The configuration of the model whose tensors these are, as a JSON object of config.json's fields: what the format's
  // own files say of it, else the config.json beside the files. Empty: nothing is known of it.
  std::string config() const;

  // Reads a tensor as CheckpointSurvey::Read does: it is kept alive by its owner, and aligned to its element type.
  NamedTensor Tensor(std::size_t index) const;
  // Throws kNotFound.
  NamedTensor Tensor(std::string_view name) const;

  // Walks all tensors in checkpoint order, or those that `order` lists, lazily. Large checkpoints are read a little
  // ahead, except when `layered`: then a tensor's owner also lets go of its file's pages. The iterator may outlive
  // this.
  std::unique_ptr<WeightsIterator> Weights() const;
  std::unique_ptr<WeightsIterator> Weights(std::vector<std::uint32_t> order) const;

 private:
  struct Contents;
  explicit Checkpoint(std::shared_ptr<const Contents> contents);

  std::shared_ptr<const Contents> contents_;  // the other owners: iterators that were handed out, and copies
};

}  // namespace layercast
