// MANIFEST.md specifies the form that is written and read here.
#include "src/tensor/manifest_form.h"

#include <bit>
#include <cmath>
#include <optional>
#include <string_view>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast::manifest_form {
namespace {

constexpr std::string_view kMagic("LCMANIF\0", 8);
constexpr std::uint32_t kNewestFormat = 2;
constexpr std::uint32_t kPartsFormat = 2;               // from this one on, tensors may be parts
constexpr std::size_t kSmallestLayout = 2 + 1 + 1 + 1;  // one tensor's: a name of one byte, a scalar
constexpr std::size_t kValuesBytes = 16 + 4;

// A version that one publisher has whole is written as ever: it has the same digest in every release.
std::uint32_t FormatOf(const VersionPart& part) { return part.ranks == 1 ? 1 : kPartsFormat; }

void PutShape(const Shape& shape, ByteWriter& out) {
  for (const std::int64_t dim : shape) out.Put(static_cast<std::uint64_t>(dim));
}

void PutPart(const std::optional<TensorPart>& part, ByteWriter& out) {
  out.Put(static_cast<std::uint8_t>(part ? 1 : 0));
  if (!part) return;
  PutShape(part->whole, out);
  PutShape(part->offsets, out);
}
Shape GetShape(ByteReader& in, std::size_t rank, const std::string& name) {
  Shape shape;
  for (std::size_t i = 0; i < rank; ++i) {
    const auto dim = in.Get<std::uint64_t>("a dimension");
    if (dim >> 63 != 0) in.Fail(Quote(name) + ": expected a dimension below 2^63, got " + std::to_string(dim));
    shape.push_back(static_cast<std::int64_t>(dim));
  }
  return shape;
}

std::optional<TensorPart> GetPart(ByteReader& in, const TensorSpec& spec) {
  const auto is_part = in.Get<std::uint8_t>("whether it is a part");
  if (is_part == 0) return std::nullopt;
  if (is_part != 1) in.Fail(Quote(spec.name) + ": expected 0 or 1, got " + std::to_string(is_part));
  TensorPart part;
  part.whole = GetShape(in, spec.shape.size(), spec.name);
  part.offsets = GetShape(in, spec.shape.size(), spec.name);
  if (part.whole == spec.shape) in.Fail(Quote(spec.name) + ": a part that is all of its tensor");
  return part;
}

ManifestEntry GetLayout(ByteReader& in, std::uint32_t format) {
  ManifestEntry entry;
  entry.spec.name = in.GetText(in.Get<std::uint16_t>("a name's length"), "a name");
  const auto dtype = in.Get<std::uint8_t>("a dtype");
  if (dtype >= AllDTypes().size()) in.Fail(Quote(entry.spec.name) + ": unknown dtype " + std::to_string(dtype));
  entry.spec.dtype = static_cast<DType>(dtype);
  const auto rank = in.Get<std::uint8_t>("a rank");
  entry.spec.shape = GetShape(in, rank, entry.spec.name);
  if (format >= kPartsFormat) entry.part = GetPart(in, entry.spec);
  return entry;
}

void GetValues(ByteReader& in, ManifestEntry& entry) {
  entry.digest.high = in.Get<std::uint64_t>("a digest");
  entry.digest.low = in.Get<std::uint64_t>("a digest");
  entry.amax = std::bit_cast<float>(in.Get<std::uint32_t>("an amax"));
  const bool known = std::isfinite(entry.amax) && !std::signbit(entry.amax);
  if (!known && entry.amax != kUnknownAmax) {
    in.Fail(Quote(entry.spec.name) + ": expected a finite amax of at least 0, or -1, got " +
            std::to_string(entry.amax));
  }
}

VersionPart GetVersionPart(ByteReader& in) {
  const auto rank = in.Get<std::uint32_t>("the publisher's rank");
  const auto ranks = in.Get<std::uint32_t>("the number of publishers");
  if (ranks < 2 || ranks > kMostRanks || rank >= ranks) {
    in.Fail("expected a rank of 2 publishers or more, got rank " + std::to_string(rank) + " of " +
            std::to_string(ranks));
  }
  return {static_cast<int>(rank), static_cast<int>(ranks)};
}

std::uint32_t GetFormat(ByteReader& in) {
  if (in.GetText(kMagic.size(), "the magic") != kMagic) in.Fail("this is not a manifest: its magic is another");
  const auto format = in.Get<std::uint32_t>("the format version");
  if (format == 0 || format > kNewestFormat) {
    in.Fail("expected format 1 to " + std::to_string(kNewestFormat) + ", got " + std::to_string(format));
  }
  return format;
}

std::uint32_t GetCount(ByteReader& in) {
  const auto count = in.Get<std::uint32_t>("the number of tensors");
  // Before anything is allocated for them.
  if (count > kMostTensors || count > in.remaining() / (kSmallestLayout + kValuesBytes)) {
    in.Fail(std::to_string(count) + " tensors do not fit the " + std::to_string(in.remaining()) + " bytes that follow");
  }
  return count;
}

}  // namespace

void PutLayout(const Listed& listed, ByteWriter& out) {
  const std::uint32_t format = FormatOf(listed.part);
  out.PutBytes(kMagic);
  out.Put(format);
  out.Put(static_cast<std::uint32_t>(listed.entries.size()));
  for (const std::uint32_t index : listed.order) {
    const auto& [spec, digest, amax, part] = listed.entries[index];
    out.Put(static_cast<std::uint16_t>(spec.name.size()));
    out.PutBytes(spec.name);
    out.Put(static_cast<std::uint8_t>(spec.dtype));
    out.Put(static_cast<std::uint8_t>(spec.shape.size()));
    PutShape(spec.shape, out);
    if (format >= kPartsFormat) PutPart(part, out);
  }
}

void PutValues(const Listed& listed, ByteWriter& out) {
  for (const std::uint32_t index : listed.order) {
    const ManifestEntry& entry = listed.entries[index];
    out.Put(entry.digest.high);
    out.Put(entry.digest.low);
    out.Put(std::bit_cast<std::uint32_t>(entry.amax));
  }
}

void PutLabel(const Version& version, const VersionPart& part, ByteWriter& out) {
  out.Put(static_cast<std::uint16_t>(version.lineage.size()));
  out.PutBytes(version.lineage);
  out.Put(version.step);
  if (FormatOf(part) < kPartsFormat) return;
  out.Put(static_cast<std::uint32_t>(part.rank));
  out.Put(static_cast<std::uint32_t>(part.ranks));
}

Fields Get(std::span<const std::byte> bytes) {
  ByteReader in("manifest", bytes);
  const std::uint32_t format = GetFormat(in);
  Fields fields;
  fields.entries.resize(GetCount(in));
  for (ManifestEntry& entry : fields.entries) entry = GetLayout(in, format);
  for (ManifestEntry& entry : fields.entries) GetValues(in, entry);
  fields.lineage = in.GetText(in.Get<std::uint16_t>("the lineage's length"), "the lineage");
  fields.step = in.Get<std::uint64_t>("the step");
  if (format >= kPartsFormat) fields.part = GetVersionPart(in);
  in.ExpectEnd();
  return fields;
}

}  // namespace layercast::manifest_form
