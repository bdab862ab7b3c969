// Where the records of a zip file lie, for files whose records are stored and not compressed: what torch.save writes.
// A record is then a piece of the mapped file, which no zip library hands out; and this is the outermost thing that
// nobody vouches for, so it holds every field to its bounds. Read by the loader of `pt`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace layercast {

// Values.
struct ZipRecord {
  std::string name;         // "archive/data/0"
  std::uint64_t begin = 0;  // of its bytes in the file
  std::uint64_t bytes = 0;  // in the file
  std::uint32_t crc32 = 0;
  std::uint16_t method = 0;  // 0: stored
  bool encrypted = false;
};

struct ZipDirectory {
  std::vector<ZipRecord> records;  // by name
  // torch can be told to write none (`set_crc32_options`): then all are zero, and nothing can be checked.
  bool has_checksums = false;

  const ZipRecord* Find(const std::string& name) const;  // null: none
};

// `file` is the whole file; `subject` opens every message. Throws kCorrupt naming record, offset, expected and got.
// Never reads outside `file`.
ZipDirectory ReadZipDirectory(std::span<const std::byte> file, const std::string& subject);

// Throws kUnsupported where the record is compressed or encrypted.
void CheckStored(const ZipRecord& record, const std::string& subject);

// The same, and kCorrupt unless the record's bytes have its checksum, where the file has any. Reads all of them.
void CheckRecord(std::span<const std::byte> file, const ZipDirectory& directory, const ZipRecord& record,
                 const std::string& subject);

}  // namespace layercast
