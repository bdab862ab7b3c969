// What a checkpoint format implements: one file defines its Loader, and load_format.cc has one line for it.
// SurveyCheckpoint reads folders through these.
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

// One file of a checkpoint: its tensors, under the names and in the layout of Hugging Face checkpoints, whatever the
// file's own are. Resource; immutable, so any thread may read.
class TensorFile {
 public:
  // Throws what MappedFile throws, and kNotFound for the pointer that git-lfs leaves in the place of a file.
  // Constructors of derived classes read the file's header, and throw kCorrupt and kUnsupported.
  explicit TensorFile(const std::filesystem::path& path);
  virtual ~TensorFile() = default;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.filename().native(); }
  const MappedFile& mapping() const { return mapping_; }

  // Tensors are numbered in the order of their bytes in the file, or of its directory.
  virtual std::size_t num_tensors() const = 0;
  virtual const TensorSpec& spec(std::size_t index) const = 0;
  // Reads a tensor. Either it is a view into mapping(), without an owner, which need not be aligned to the element
  // type; or, if the file holds other bytes than the tensor's, it is in memory of its own, which its owner keeps.
  // Throws kCorrupt if the bytes prove to be damaged.
  virtual NamedTensor Read(std::size_t index) const = 0;
  // What this file, or one beside it, says of the model's heads. Null: nothing. It lives as long as this object.
  virtual const HeadCounts* head_counts() const { return nullptr; }
  // What this file, or one beside it, says of the model's configuration in the format's own way, as a JSON object of
  // config.json's fields. Empty: the format says it in a config.json.
  virtual std::string config() const { return {}; }

 private:
  std::filesystem::path path_;
  MappedFile mapping_;
};

// Reads a tensor as TensorFile::Read does, and brings it into memory (MappedFile::Populate). It is aligned to its
// element type, and kept alive by its owner. Throws kCorrupt if the file is damaged or has become shorter. shared_ptr:
// the second owner is a tensor that outlives whoever opened the file.
NamedTensor ReadAligned(const std::shared_ptr<const TensorFile>& file, std::size_t index);

// One checkpoint format. Resource; stateless, so thread-safe.
class Loader {
 public:
  virtual ~Loader() = default;
  // The name of the index: the file that says which of a folder's files holds which tensor. Empty: the format has none.
  virtual std::string_view index_name() const { return {}; }
  // The name that TensorFile::spec has for the tensor that the index calls `in_index`.
  virtual std::string NameOf(std::string_view in_index) const { return std::string(in_index); }
  // Which of a folder's files (their names in natural order) hold weights of this format. Looks at names alone.
  virtual std::vector<std::string> Choose(const std::vector<std::string>& names) const = 0;
  virtual std::shared_ptr<const TensorFile> Open(const std::filesystem::path& file) const = 0;
};

}  // namespace layercast
