// Where the records of a zip file lie, if they are stored and not compressed, as torch.save writes them. A record is
// then a piece of the mapped file, which no zip library hands out. Nothing here is trusted: every field is checked
// against its bounds. Used by the loader of `pt`.
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
  std::uint64_t begin = 0;  // where its bytes begin in the file
  std::uint64_t bytes = 0;  // how many it has in the file
  std::uint32_t crc32 = 0;
  std::uint16_t method = 0;  // 0: stored
  bool encrypted = false;
};

struct ZipDirectory {
  std::vector<ZipRecord> records;  // sorted by name
  // torch can be told to write no checksums (`set_crc32_options`): then all are zero, and nothing can be checked.
  bool has_checksums = false;

  const ZipRecord* Find(const std::string& name) const;  // null: there is none
};

// `file` is the whole file. Throws kCorrupt, naming record, offset, expected and got; every message begins with
// `subject`. Never reads outside `file`.
ZipDirectory ReadZipDirectory(std::span<const std::byte> file, const std::string& subject);

// Throws kUnsupported if the record is compressed or encrypted.
void CheckStored(const ZipRecord& record, const std::string& subject);

// Throws what CheckStored throws, and kCorrupt if the file has checksums and the record's bytes do not match theirs.
// Reads all of the record.
void CheckRecord(std::span<const std::byte> file, const ZipDirectory& directory, const ZipRecord& record,
                 const std::string& subject);

}  // namespace layercast
