// Writes one safetensors file without holding its tensors: the header is made from their specs, and the bytes follow
// one tensor at a time. Used by `export`, examples and tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layercast/tensor.h"
#include "src/base/unique_fd.h"

namespace layercast {

// Resource; one thread only. The data begins at a multiple of 8 bytes, because spaces pad the header. The file is
// written beside its place, and Commit renames it, so nobody ever reads half of one.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  // Throws kInvalidArgument on what the format cannot hold (a repeated name, a name that is not UTF-8 or is
  // "__metadata__", a header above 100 MB), and if the file cannot be created.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> specs, const Metadata& metadata = {});
  ~SafetensorsWriter();  // without Commit nothing is left behind
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // The specs in the order of the file: by dtype, widest first (the numbers of DType, descending), then by name. So
  // every tensor is aligned to its element type, and the file equals, byte for byte, the one that the reference
  // implementation writes.
  const std::vector<TensorSpec>& specs() const { return specs_; }
  // Writes a tensor. Each must be written once, in any order; the order of specs() writes the file sequentially. Throws
  // kInvalidArgument on a name that is unknown or was written already, and on another number of bytes than the spec's.
  void Write(std::string_view name, std::span<const std::byte> bytes);
  // Returns once the file is on disk under its name. Throws kFailedPrecondition, naming one, while tensors are missing.
  void Commit();

 private:
  struct Slot {
    std::uint64_t begin = 0;  // where its bytes begin in the file
    std::uint64_t bytes = 0;
    bool written = false;
  };

  std::string PlaceTensors(const Metadata& metadata);  // fills slots_; returns the file's first bytes
  void CreateTemporary();
  void WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailErrno(const std::string& what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // the file before Commit; empty once it is renamed
  std::vector<TensorSpec> specs_;
  std::unordered_map<std::string_view, Slot> slots_;  // the keys live in specs_
  UniqueFd file_;
};

// Writes a whole file at once, of tensors in host memory.
void WriteSafetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const SafetensorsWriter::Metadata& metadata = {});

}  // namespace layercast
