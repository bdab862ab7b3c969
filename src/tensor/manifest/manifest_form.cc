// MANIFEST.md specifies the form that is written and read here.
#include "src/tensor/manifest/manifest_form.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast::manifest_form {
namespace {

constexpr std::string_view kMagic("LCMANIF\0", 8);
constexpr std::uint32_t kNewestFormat = 2;
constexpr std::uint32_t kPartsFormat = 2;               // from this format on, tensors may be parts
constexpr std::size_t kSmallestLayout = 2 + 1 + 1 + 1;  // bytes of one tensor's: a name of one byte, a scalar

// A version that one publisher has whole is written in the oldest format, so that its digest is the same in every
// release.
std::uint32_t FormatOf(bool shared) { return shared ? kPartsFormat : 1; }

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

LaidOutTensor GetTensor(ByteReader& in, std::uint32_t format) {
  LaidOutTensor tensor;
  TensorSpec& spec = tensor.spec;
  spec.name = in.GetText(in.Get<std::uint16_t>("a name's length"), "a name");
  const auto dtype = in.Get<std::uint8_t>("a dtype");
  if (dtype >= AllDTypes().size()) in.Fail(Quote(spec.name) + ": unknown dtype " + std::to_string(dtype));
  spec.dtype = static_cast<DType>(dtype);
  const auto rank = in.Get<std::uint8_t>("a rank");
  spec.shape = GetShape(in, rank, spec.name);
  if (format >= kPartsFormat) tensor.part = GetPart(in, spec);
  return tensor;
}

TensorSummary GetSummary(ByteReader& in, const TensorSpec& spec) {
  TensorSummary summary;
  summary.digest.high = in.Get<std::uint64_t>("a digest");
  summary.digest.low = in.Get<std::uint64_t>("a digest");
  summary.amax = std::bit_cast<float>(in.Get<std::uint32_t>("an amax"));
  const bool known = std::isfinite(summary.amax) && !std::signbit(summary.amax);
  if (!known && summary.amax != kUnknownAmax) {
    in.Fail(Quote(spec.name) + ": expected a finite amax of at least 0, or -1, got " + std::to_string(summary.amax));
  }
  return summary;
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
  // Refused before anything is allocated for so many tensors.
  if (count > kMostTensors || count > in.remaining() / (kSmallestLayout + kSummaryBytes)) {
    in.Fail(std::to_string(count) + " tensors do not fit the " + std::to_string(in.remaining()) + " bytes that follow");
  }
  return count;
}

void GetLayout(ByteReader& in, Fields& fields) {
  const std::uint32_t format = GetFormat(in);
  fields.shared = format >= kPartsFormat;
  fields.tensors.resize(GetCount(in));
  for (LaidOutTensor& tensor : fields.tensors) tensor = GetTensor(in, format);
}

// Whether the bytes hold the layout whose form this is. A form tells where its layout ends, so bytes that begin with
// the whole of a layout's form hold that layout.
bool BeginsWith(std::span<const std::byte> bytes, std::span<const std::byte> form) {
  return bytes.size() >= form.size() && std::memcmp(bytes.data(), form.data(), form.size()) == 0;
}

}  // namespace

std::string TextProblem(std::string_view text, std::size_t shortest, std::size_t longest) {
  if (text.size() < shortest || text.size() > longest) {
    return "expected " + std::to_string(shortest) + " to " + std::to_string(longest) + " bytes, got " +
           std::to_string(text.size());
  }
  if (text.find('\0') != std::string_view::npos) return "holds a NUL";
  if (const auto offset = FindInvalidUtf8(text)) return "is not UTF-8 at byte " + std::to_string(*offset);
  return {};
}

void PutLayout(std::span<const LaidOutTensor> tensors, std::span<const std::uint32_t> order, bool shared,
               ByteWriter& out) {
  out.PutBytes(kMagic);
  out.Put(FormatOf(shared));
  out.Put(static_cast<std::uint32_t>(tensors.size()));
  for (const std::uint32_t index : order) {
    const auto& [spec, part] = tensors[index];
    out.Put(static_cast<std::uint16_t>(spec.name.size()));
    out.PutBytes(spec.name);
    out.Put(static_cast<std::uint8_t>(spec.dtype));
    out.Put(static_cast<std::uint8_t>(spec.shape.size()));
    PutShape(spec.shape, out);
    if (shared) PutPart(part, out);
  }
}

void PutSummaries(std::span<const TensorSummary> summaries, std::span<const std::uint32_t> order, ByteWriter& out) {
  for (const std::uint32_t index : order) {
    const auto& [digest, amax] = summaries[index];
    out.Put(digest.high, digest.low, std::bit_cast<std::uint32_t>(amax));
  }
}

void PutLabel(const Version& version, const VersionPart& part, ByteWriter& out) {
  out.Put(static_cast<std::uint16_t>(version.lineage.size()));
  out.PutBytes(version.lineage);
  out.Put(version.step);
  if (part.ranks == 1) return;
  out.Put(static_cast<std::uint32_t>(part.rank));
  out.Put(static_cast<std::uint32_t>(part.ranks));
}

Fields Get(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known) {
  ByteReader in("manifest", bytes);
  Fields fields;
  if (known != nullptr && BeginsWith(bytes, known->form())) {
    in.GetBytes(known->form().size(), "the layout");
    fields.shared = known->shared();
    fields.layout = std::move(known);
  } else {
    GetLayout(in, fields);
  }
  const std::vector<LaidOutTensor>& tensors = fields.layout ? fields.layout->tensors() : fields.tensors;
  fields.summaries.reserve(tensors.size());
  for (const LaidOutTensor& tensor : tensors) fields.summaries.push_back(GetSummary(in, tensor.spec));
  fields.lineage = in.GetText(in.Get<std::uint16_t>("the lineage's length"), "the lineage");
  fields.step = in.Get<std::uint64_t>("the step");
  if (fields.shared) fields.part = GetVersionPart(in);
  in.ExpectEnd();
  return fields;
}

}  // namespace layercast::manifest_form
