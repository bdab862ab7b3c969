#include "src/checkpoint/torch_save/zip_directory.h"

#include <zlib.h>

#include <algorithm>
#include <cstdio>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

// The numbers behind these constants are sections of PKWARE's APPNOTE.TXT.
constexpr std::uint32_t kEndSignature = 0x06054b50;       // 4.3.16
constexpr std::uint32_t kZip64EndSignature = 0x06064b50;  // 4.3.14
constexpr std::uint32_t kLocatorSignature = 0x07064b50;   // 4.3.15
constexpr std::uint32_t kEntrySignature = 0x02014b50;     // 4.3.12
constexpr std::uint32_t kLocalSignature = 0x04034b50;     // 4.3.7
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kZip64EndBytes = 56;
constexpr std::uint64_t kLocatorBytes = 20;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint16_t kZip64Field = 1;  // 4.5.3
constexpr std::uint16_t kInZip64 = 0xFFFF;
constexpr std::uint32_t kInZip64Wide = 0xFFFFFFFF;

std::string Hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

class Reader {
 public:
  Reader(std::span<const std::byte> file, const std::string& subject) : file_(file), subject_(subject) {}

  ZipDirectory Read() {
    const Extent where = FindDirectory();
    ByteReader entries(subject_ + ": zip directory at byte " + std::to_string(where.begin),
                       Bytes(where.begin, where.bytes, "the zip directory"));
    ZipDirectory directory;
    for (std::uint64_t i = 0; i < where.entries; ++i) {
      directory.records.push_back(ReadEntry(entries, where.begin));
      if (directory.records.back().crc32 != 0) directory.has_checksums = true;
    }
    entries.ExpectEnd();
    CheckNoOverlap(directory.records);
    std::ranges::sort(directory.records, {}, &ZipRecord::name);
    const auto twice = std::ranges::adjacent_find(directory.records, {}, &ZipRecord::name);
    if (twice != directory.records.end()) Fail("the record " + Quote(twice->name) + " is there twice");
    return directory;
  }

 private:
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;
    std::uint64_t entries = 0;
  };

  [[noreturn]] void Fail(const std::string& what) const { throw Error(ErrorCode::kCorrupt, subject_ + ": " + what); }

  std::span<const std::byte> Bytes(std::uint64_t begin, std::uint64_t count, const std::string& what) const {
    if (begin <= file_.size() && count <= file_.size() - begin) {
      return file_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
    }
    Fail(what + ": expected " + std::to_string(count) + " bytes at byte " + std::to_string(begin) + ", got a file of " +
         std::to_string(file_.size()));
  }

  ByteReader At(std::uint64_t begin, std::uint64_t count, const std::string& what) const {
    return {subject_ + ": " + what + " at byte " + std::to_string(begin), Bytes(begin, count, what)};
  }

  static void ExpectSignature(ByteReader& reader, std::uint32_t expected) {
    const auto got = reader.Get<std::uint32_t>("a signature");
    if (got != expected) reader.Fail("expected the signature " + Hex(expected) + ", got " + Hex(got));
  }

  // The end record is the last thing in the file, if that has no comment. A file that was cut has none there.
  Extent FindDirectory() const {
    if (file_.size() < kEndBytes) Bytes(0, kEndBytes, "the end of a zip file");
    const std::uint64_t at = file_.size() - kEndBytes;
    ByteReader end = At(at, kEndBytes, "the end of a zip file");
    ExpectSignature(end, kEndSignature);
    const auto disk = end.Get<std::uint16_t>("disk");
    const auto directory_disk = end.Get<std::uint16_t>("disk of the directory");
    const auto here = end.Get<std::uint16_t>("entries on this disk");
    Extent found;
    found.entries = end.Get<std::uint16_t>("entries");
    found.bytes = end.Get<std::uint32_t>("size of the directory");
    found.begin = end.Get<std::uint32_t>("offset of the directory");
    const auto comment = end.Get<std::uint16_t>("length of the comment");
    if (comment != 0) end.Fail("expected no comment, got one of " + std::to_string(comment) + " bytes");
    if (disk != 0 || directory_disk != 0 || here != found.entries) end.Fail("expected one file, got a part of several");
    std::uint64_t limit = at;
    if (found.entries == kInZip64 || found.bytes == kInZip64Wide || found.begin == kInZip64Wide) {
      found = FindZip64Directory(at, limit);
    }
    if (found.begin > limit || found.bytes > limit - found.begin) {
      Fail("the zip directory: expected it to end before byte " + std::to_string(limit) + ", got " +
           std::to_string(found.bytes) + " bytes at byte " + std::to_string(found.begin));
    }
    return found;
  }

  Extent FindZip64Directory(std::uint64_t end_at, std::uint64_t& limit) const {
    if (end_at < kLocatorBytes) Fail("the zip64 locator: expected one before byte " + std::to_string(end_at));
    ByteReader locator = At(end_at - kLocatorBytes, kLocatorBytes, "the zip64 locator");
    ExpectSignature(locator, kLocatorSignature);
    locator.Get<std::uint32_t>("disk");
    limit = locator.Get<std::uint64_t>("offset of the zip64 end");
    ByteReader end = At(limit, kZip64EndBytes, "the zip64 end");
    ExpectSignature(end, kZip64EndSignature);
    end.GetBytes(20, "its size, versions and disks");
    const auto here = end.Get<std::uint64_t>("entries on this disk");
    Extent found;
    found.entries = end.Get<std::uint64_t>("entries");
    found.bytes = end.Get<std::uint64_t>("size of the directory");
    found.begin = end.Get<std::uint64_t>("offset of the directory");
    if (here != found.entries) end.Fail("expected one file, got a part of several");
    return found;
  }

  ZipRecord ReadEntry(ByteReader& entries, std::uint64_t directory_begin) const {
    ExpectSignature(entries, kEntrySignature);
    entries.GetBytes(4, "versions");
    ZipRecord record;
    record.encrypted = (entries.Get<std::uint16_t>("flags") & 1) != 0;
    record.method = entries.Get<std::uint16_t>("method");
    entries.GetBytes(4, "time");
    record.crc32 = entries.Get<std::uint32_t>("crc-32");
    record.bytes = entries.Get<std::uint32_t>("compressed size");
    std::uint64_t size = entries.Get<std::uint32_t>("size");
    const auto name_bytes = entries.Get<std::uint16_t>("length of the name");
    const auto extra_bytes = entries.Get<std::uint16_t>("length of the extra field");
    const auto comment_bytes = entries.Get<std::uint16_t>("length of the comment");
    entries.GetBytes(8, "disk and attributes");
    std::uint64_t local = entries.Get<std::uint32_t>("offset of the record");
    record.name = entries.GetText(name_bytes, "the name");
    const std::string what = "record " + Quote(record.name);
    ReadZip64Field(subject_ + ": " + what + ": extra field", entries.GetBytes(extra_bytes, "the extra field"),
                   {&size, &record.bytes, &local});
    entries.GetBytes(comment_bytes, "the comment");
    if (FindInvalidUtf8(record.name)) Fail(what + ": expected a name in UTF-8");
    if (record.method == 0 && record.bytes != size) {
      Fail(what + ": expected two equal sizes of a stored record, got " + std::to_string(record.bytes) + " and " +
           std::to_string(size));
    }
    record.begin = DataBegin(record, local);
    if (record.begin > directory_begin || record.bytes > directory_begin - record.begin) {
      Fail(what + ": expected it to end before the directory at byte " + std::to_string(directory_begin) + ", got " +
           std::to_string(record.bytes) + " bytes at byte " + std::to_string(record.begin));
    }
    return record;
  }

  // Reads the numbers that do not fit in 32 bits and so are in this field, in this order.
  static void ReadZip64Field(const std::string& what, std::span<const std::byte> bytes,
                             std::initializer_list<std::uint64_t*> numbers) {
    ByteReader extra(what, bytes);
    while (extra.remaining() >= 4) {
      const auto id = extra.Get<std::uint16_t>("id");
      ByteReader wide(what + ": zip64", extra.GetBytes(extra.Get<std::uint16_t>("length"), "a field"));
      if (id != kZip64Field) continue;
      for (std::uint64_t* number : numbers) {
        if (*number == kInZip64Wide) *number = wide.Get<std::uint64_t>("a size or offset");
      }
    }
  }

  // Where a record's data begins: behind the local header, which has padding of its own. Its name must be the
  // directory's.
  std::uint64_t DataBegin(const ZipRecord& record, std::uint64_t local) const {
    const std::string what = "record " + Quote(record.name) + ": local header";
    ByteReader header = At(local, kLocalBytes, what);
    ExpectSignature(header, kLocalSignature);
    header.GetBytes(22, "versions, flags, method, time and sizes");
    const auto name_bytes = header.Get<std::uint16_t>("length of the name");
    const auto extra_bytes = header.Get<std::uint16_t>("length of the extra field");
    const std::string name = At(local + kLocalBytes, name_bytes, what).GetText(name_bytes, "the name");
    if (name != record.name) header.Fail("expected the name " + Quote(record.name) + ", got " + Quote(name));
    return local + kLocalBytes + name_bytes + extra_bytes;
  }

  void CheckNoOverlap(std::vector<ZipRecord>& records) const {
    std::ranges::sort(records, {}, &ZipRecord::begin);
    for (std::size_t i = 1; i < records.size(); ++i) {
      const ZipRecord& before = records[i - 1];
      if (before.begin + before.bytes <= records[i].begin) continue;
      Fail("record " + Quote(records[i].name) + ": expected it behind byte " +
           std::to_string(before.begin + before.bytes) + ", where " + Quote(before.name) + " ends, got it at byte " +
           std::to_string(records[i].begin));
    }
  }

  const std::span<const std::byte> file_;
  const std::string& subject_;
};

}  // namespace

const ZipRecord* ZipDirectory::Find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(records, name, {}, &ZipRecord::name);
  return found == records.end() || found->name != name ? nullptr : &*found;
}

ZipDirectory ReadZipDirectory(std::span<const std::byte> file, const std::string& subject) {
  return Reader(file, subject).Read();
}

void CheckStored(const ZipRecord& record, const std::string& subject) {
  if (record.method == 0 && !record.encrypted) return;
  throw Error(ErrorCode::kUnsupported,
              subject + ": record " + Quote(record.name) +
                  ": expected a stored record, as torch.save writes them, got " +
                  (record.encrypted ? "an encrypted one" : "method " + std::to_string(record.method)));
}

void CheckRecord(std::span<const std::byte> file, const ZipDirectory& directory, const ZipRecord& record,
                 const std::string& subject) {
  CheckStored(record, subject);
  if (!directory.has_checksums) return;
  const auto bytes = file.subspan(static_cast<std::size_t>(record.begin), static_cast<std::size_t>(record.bytes));
  const auto got =
      static_cast<std::uint32_t>(::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  if (got == record.crc32) return;
  throw Error(ErrorCode::kCorrupt, subject + ": record " + Quote(record.name) + ": crc-32 of its " +
                                       std::to_string(record.bytes) + " bytes at byte " + std::to_string(record.begin) +
                                       ": expected " + Hex(record.crc32) + ", got " + Hex(got));
}

}  // namespace layercast
