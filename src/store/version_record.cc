#include "src/store/version_record.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/digest/digest.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast {
namespace {

constexpr std::string_view kVersionMagic{"LCSTVER\0", 8};
constexpr std::string_view kPartsMagic{"LCSTPTS\0", 8};
constexpr std::string_view kRunMagic{"LCSTRUN\0", 8};
constexpr std::size_t kSealBytes = 16;

void PutLong(ByteWriter& to, std::span<const std::byte> bytes) {
  to.Put(static_cast<std::uint64_t>(bytes.size()));
  to.PutBytes(bytes);
}

std::span<const std::byte> GetLong(ByteReader& from, std::string_view field) {
  const auto bytes = from.Get<std::uint64_t>(field);
  if (bytes > from.remaining()) from.Fail(std::string(field) + ": expected " + std::to_string(bytes) + " more bytes");
  return from.GetBytes(static_cast<std::size_t>(bytes), field);
}

std::string TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Appends the digest of all that was written.
std::vector<std::byte> Sealed(ByteWriter writer) {
  const Digest digest = DigestOf(writer.bytes());
  writer.Put(digest.high, digest.low);
  return std::move(writer).Take();
}

// The bytes in front of the digest, which is theirs.
std::span<const std::byte> Unsealed(const char* what, std::span<const std::byte> bytes) {
  ByteReader reader(what, bytes);
  const std::span<const std::byte> content =
      reader.GetBytes(std::max(bytes.size(), kSealBytes) - kSealBytes, "content");
  const auto high = reader.Get<std::uint64_t>("digest");
  const auto low = reader.Get<std::uint64_t>("digest");
  const Digest digest = DigestOf(content);
  if (digest != Digest{high, low}) {
    reader.Fail("expected digest " + Digest{high, low}.ToHex() + " of what is before, got " + digest.ToHex());
  }
  return content;
}

// The manifest of whole tensors.
Manifest WholeOf(std::span<const Manifest> parts) {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) names.push_back("of rank " + std::to_string(rank));
  return Merge(parts, names).manifest;
}

void DecodeParts(ByteReader& reader, VersionRecord& record) {
  const auto ranks = reader.Get<std::uint32_t>("ranks");
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    record.parts.push_back(Manifest::Decode(GetLong(reader, "manifest")));
    const VersionPart& part = record.parts.back().part();
    if (part.rank != static_cast<int>(rank) || part.ranks != static_cast<int>(ranks)) {
      reader.Fail("expected part " + std::to_string(rank) + " of " + std::to_string(ranks) + ", got " +
                  std::to_string(part.rank) + " of " + std::to_string(part.ranks));
    }
  }
  if (ranks < 2) reader.Fail("expected two ranks or more, got " + std::to_string(ranks));
  try {
    record.manifest = WholeOf(record.parts);
  } catch (const Error& error) {
    reader.Fail(error.what());
  }
}

void ExpectMagic(ByteReader& reader, std::string_view magic) {
  if (reader.GetText(magic.size(), "magic") != magic) reader.Fail("expected another magic");
}

}  // namespace

VersionRecord VersionRecord::OfParts(std::vector<VersionRecord> records) {
  VersionRecord whole;
  whole.run = records.front().run;
  whole.config = records.front().config;
  for (VersionRecord& record : records) {
    whole.published_ms = std::max(whole.published_ms, record.published_ms);
    whole.parts.push_back(std::move(record.manifest));
  }
  whole.manifest = WholeOf(whole.parts);
  return whole;
}

std::vector<std::byte> VersionRecord::Encode() const {
  ByteWriter writer;
  writer.PutBytes(parts.empty() ? kVersionMagic : kPartsMagic);
  writer.Put(published_ms);
  PutLong(writer, std::as_bytes(std::span(run)));
  PutLong(writer, std::as_bytes(std::span(config)));
  if (!parts.empty()) writer.Put(static_cast<std::uint32_t>(parts.size()));
  for (const Manifest& one : held()) PutLong(writer, one.Encode());
  return Sealed(std::move(writer));
}

VersionRecord VersionRecord::Decode(std::span<const std::byte> bytes) {
  ByteReader reader("version record", Unsealed("version record", bytes));
  const std::string magic = reader.GetText(kVersionMagic.size(), "magic");
  if (magic != kVersionMagic && magic != kPartsMagic) reader.Fail("expected another magic");
  VersionRecord record;
  record.published_ms = reader.Get<std::uint64_t>("time");
  record.run = TextOf(GetLong(reader, "run"));
  record.config = TextOf(GetLong(reader, "config"));
  if (magic == kVersionMagic) {
    record.manifest = Manifest::Decode(GetLong(reader, "manifest"));
  } else {
    DecodeParts(reader, record);
  }
  reader.ExpectEnd();
  return record;
}

std::vector<std::byte> RunRecord::Encode() const {
  ByteWriter writer;
  writer.PutBytes(kRunMagic);
  writer.Put(first_step);
  PutLong(writer, std::as_bytes(std::span(run)));
  return Sealed(std::move(writer));
}

RunRecord RunRecord::Decode(std::span<const std::byte> bytes) {
  ByteReader reader("run record", Unsealed("run record", bytes));
  ExpectMagic(reader, kRunMagic);
  RunRecord record;
  record.first_step = reader.Get<std::uint64_t>("first step");
  record.run = TextOf(GetLong(reader, "run"));
  reader.ExpectEnd();
  return record;
}

std::uint64_t ObjectBytes(std::uint64_t tensor_bytes) {
  const std::uint64_t leaves = NumLeaves(static_cast<std::size_t>(tensor_bytes));
  return tensor_bytes + (leaves == 1 ? 0 : leaves * 2 * sizeof(std::uint64_t));
}

std::uint64_t BytesOf(const Manifest& manifest, std::uint32_t tensor) {
  const TensorSpec& spec = manifest.entry(tensor).spec;
  return static_cast<std::uint64_t>(NumBytes(spec.dtype, spec.shape));
}

}  // namespace layercast
