// How a file comes to be in a store: whole and on disk, or not at all. Used by all that write there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "src/base/failpoint.h"
#include "src/base/unique_fd.h"

namespace layercast {

// What a call on a file of a store has failed with. A full disk is kResourceExhausted.
[[noreturn]] void FailOnFile(const std::filesystem::path& path, const std::string& what, int error);

// A file in `tmp`, which goes again unless it is put in its place. Every step of that passes the failpoint
// "store.step". Resource; one thread only.
class NewFile {
 public:
  NewFile(const std::filesystem::path& tmp, FailPoints& failpoints);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Write(std::string_view text);
  // Brings what was written to disk. After a failure the file must be written anew: a second flush may lie.
  void Flush();
  // When it was last written, by the clock of the host that has the store: nanoseconds since 1970.
  std::int64_t WrittenAt() const;
  // These two put it in its place, in the same file system. Rename replaces what is there.
  void Rename(const std::filesystem::path& to);
  // Returns false if something is there already.
  bool Link(const std::filesystem::path& to);

 private:
  bool IsLinked() const;

  const std::filesystem::path path_;
  FailPoints& failpoints_;
  UniqueFd file_;
  bool placed_ = false;
};

// Brings the names in a folder to disk.
void FlushFolder(const std::filesystem::path& folder, FailPoints& failpoints);

}  // namespace layercast
