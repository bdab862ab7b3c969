// A regular file's bytes, mapped read-only. Used by readers of checkpoint files. All processes of a host that map a
// file share its pages, so the ranks of an engine read it from disk once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace layercast {

// Resource; immutable, so any thread may read. The bytes are those of the file: if it is truncated while it is mapped,
// reading the lost part raises SIGBUS, unless Populate notices first. So checkpoints should be replaced by rename, as
// SafetensorsWriter does: a mapping then keeps the old bytes.
class MappedFile {
 public:
  // Throws kNotFound if there is no such file, kInvalidArgument if it cannot be opened or is not a regular file, and
  // kResourceExhausted if no descriptor or memory is left for it.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  // Reads `part` of the file into memory. Throws kCorrupt if the file has become shorter than that, which needs Linux
  // 5.14; an older kernel only begins to read ahead.
  void Populate(std::span<const std::byte> part) const;
  // Says that this process needs `part` no more: its pages stop counting as the process's memory. Reading them again is
  // slow, but not wrong.
  void Release(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;  // empty for an empty file, which cannot be mapped
};

}  // namespace layercast
