// A regular file's bytes, mapped read-only. Readers of checkpoint files use it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace layercast {

// Resource; immutable, so any thread may read. The bytes are those of the file: a file that somebody truncates while it
// is mapped raises SIGBUS in whoever reads the lost part. Replace checkpoints by rename, as SafetensorsWriter
// does, and a mapping keeps the old bytes.
class MappedFile {
 public:
  // Throws kNotFound if there is no such file, kInvalidArgument if it cannot be opened or is not a regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;  // empty for an empty file, which cannot be mapped
};

}  // namespace layercast
