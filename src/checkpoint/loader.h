// How a format of checkpoints joins: one file of this folder that defines its Loader, declared at the end here, and one
// line in load_format.cc. CheckpointSurvey reads folders through these.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"
#include "src/checkpoint/head_counts.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {

// One file of a checkpoint: its tensors, under the names and in the layout of Hugging Face checkpoints, whatever its
// own are. Resource; immutable, so any thread may read.
class TensorFile {
 public:
  // Throws as MappedFile does, and kNotFound on what git-lfs leaves in the place of a file. Whoever derives from it
  // reads the file's head, and throws kCorrupt and kUnsupported.
  explicit TensorFile(const std::filesystem::path& path);
  virtual ~TensorFile() = default;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.filename().native(); }
  const MappedFile& mapping() const { return mapping_; }

  // In the order of their bytes in the file, or of its directory.
  virtual std::size_t num_tensors() const = 0;
  virtual const TensorSpec& spec(std::size_t index) const = 0;
  // Without an owner: a view into mapping(), which need not be aligned to the element type. Where the file holds other
  // bytes: a tensor made anew, and its owner. Throws kCorrupt where the bytes prove to be damaged.
  virtual NamedTensor Read(std::size_t index) const = 0;
  // What this file, or one beside it, says of the model's heads; null: nothing. Lives as long as this.
  virtual const HeadCounts* head_counts() const { return nullptr; }

 private:
  std::filesystem::path path_;
  MappedFile mapping_;
};

// Stateless; thread-safe.
class Loader {
 public:
  virtual ~Loader() = default;
  // Of the file that says which of a folder's files holds which tensor, where there is one; empty: no such thing.
  virtual std::string_view index_name() const { return {}; }
  // The tensor that the index calls so, as TensorFile::spec calls it.
  virtual std::string NameOf(std::string_view in_index) const { return std::string(in_index); }
  // Which of a folder's files (their names in natural order) hold weights of this format. Looks at names alone.
  virtual std::vector<std::string> Choose(const std::vector<std::string>& names) const = 0;
  virtual std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const = 0;
};

std::unique_ptr<const Loader> MakeSafetensorsLoader();
std::unique_ptr<const Loader> MakeMistralLoader();
std::unique_ptr<const Loader> MakePtLoader();
std::unique_ptr<const Loader> MakeGgufLoader();

}  // namespace layercast
