// Writes one safetensors file without holding its tensors: the header is known from their specs, the bytes follow
// one tensor at a time. `export`, examples and tests use it.
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

// Resource; one thread only. The data begins at a multiple of 8 (spaces end the header). The file is written beside its
// place and renamed there by Commit, so nobody ever reads half of one.
class SafetensorsWriter {
 public:
  using Metadata = std::map<std::string, std::string>;

  // Throws kInvalidArgument on what the format cannot hold (a repeated name, one that is not UTF-8 or is
  // "__metadata__", a header above 100 MB) or if the file cannot be made.
  SafetensorsWriter(std::filesystem::path path, std::vector<TensorSpec> specs, const Metadata& metadata = {});
  ~SafetensorsWriter();  // without Commit nothing is left behind
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // In the order of the file: by dtype, widest first (the numbers of DType, descending), then by name. So every tensor
  // is aligned to its element type, and the file equals, byte for byte, the one that the reference implementation
  // writes.
  const std::vector<TensorSpec>& specs() const { return specs_; }
  // Each tensor once, in any order; sequential writing is that of specs(). Throws kInvalidArgument on a name that is
  // unknown or was written, or another number of bytes than its spec's.
  void Write(std::string_view name, std::span<const std::byte> bytes);
  // Throws kFailedPrecondition, naming one, while tensors are missing. Returns once the file is on disk under its name.
  void Commit();

 private:
  struct Slot {
    std::uint64_t begin = 0;  // in the file
    std::uint64_t bytes = 0;
    bool written = false;
  };

  std::string PlaceTensors(const Metadata& metadata);  // fills slots_; returns the file's first bytes
  void CreateTemporary();
  void WriteAt(std::uint64_t offset, std::span<const std::byte> bytes);
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailErrno(const std::string& what) const;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty once it is gone
  std::vector<TensorSpec> specs_;
  std::unordered_map<std::string_view, Slot> slots_;  // the keys live in specs_
  UniqueFd file_;
};

// All at once, for tensors that are in host memory already.
void WriteSafetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                      const SafetensorsWriter::Metadata& metadata = {});

}  // namespace layercast
