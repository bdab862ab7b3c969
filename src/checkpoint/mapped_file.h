// A regular file's bytes, mapped read-only. Readers of checkpoint files use it. All processes of a host that map a file
// share the pages of it: ranks read it once between them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace layercast {

// Resource; immutable, so any thread may read. The bytes are those of the file: a file that somebody truncates while it
// is mapped raises SIGBUS in whoever reads the lost part after Populate had seen it. Replace checkpoints by rename, as
// SafetensorsWriter does, and a mapping keeps the old bytes.
class MappedFile {
 public:
  // Throws kNotFound if there is no such file, kInvalidArgument if it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

  // Reads `part` of the file into memory. Throws kCorrupt when the file has become shorter than that, where the kernel
  // can tell (Linux 5.14); an older one only begins to read ahead.
  void Populate(std::span<const std::byte> part) const;
  // This process needs `part` no more: its pages stop counting as memory of it. Reading them again is slow, not wrong.
  void Release(std::span<const std::byte> part) const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;  // empty for an empty file, which cannot be mapped
};

}  // namespace layercast
