// MANIFEST.md specifies the form that is written and read here.
#include "src/tensor/manifest/manifest_form.h"

#include <algorithm>
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

// Each of these is a part of the form, for both archives.

void Header(auto& archive, auto& shared, auto&& tensors) {
  std::string magic(kMagic);
  archive.Bytes(magic, kMagic.size(), "the magic");
  if (magic != kMagic) archive.Refuse("this is not a manifest: its magic is another");
  // A version that one publisher has whole is written in the oldest format, so that its digest is the same in every
  // release.
  std::uint32_t format = shared ? kPartsFormat : 1;
  archive.Number(format, "the format version");
  if (format == 0 || format > kNewestFormat) {
    archive.Refuse("expected format 1 to " + std::to_string(kNewestFormat) + ", got " + std::to_string(format));
  }
  archive.Set(shared, format >= kPartsFormat);
  archive.Number(tensors, "the number of tensors");
}

void Extents(auto& archive, auto& shape, std::size_t rank, const std::string& name) {
  Each(archive, shape, rank, [&](auto& dim) {
    As<std::uint64_t>(archive, dim, "a dimension");
    if (dim < 0) {
      archive.Refuse(Quote(name) + ": expected a dimension below 2^63, got " +
                     std::to_string(static_cast<std::uint64_t>(dim)));
    }
  });
}

void Part(auto& archive, auto& part, const TensorSpec& spec) {
  std::uint8_t is_part = part ? 1 : 0;
  archive.Number(is_part, "whether it is a part");
  if (is_part > 1) archive.Refuse(Quote(spec.name) + ": expected 0 or 1, got " + std::to_string(is_part));
  if (is_part == 0) return;
  archive.Set(part, TensorPart());
  Extents(archive, part->whole, spec.shape.size(), spec.name);
  Extents(archive, part->offsets, spec.shape.size(), spec.name);
  if (part->whole == spec.shape) archive.Refuse(Quote(spec.name) + ": a part that is all of its tensor");
}

void Tensor(auto& archive, Is<LaidOutTensor> auto& tensor, bool shared) {
  auto& spec = tensor.spec;
  Text<std::uint16_t>(archive, spec.name, "a name's length", "a name");
  auto dtype = static_cast<std::uint8_t>(spec.dtype);
  archive.Number(dtype, "a dtype");
  if (dtype >= AllDTypes().size()) archive.Refuse(Quote(spec.name) + ": unknown dtype " + std::to_string(dtype));
  archive.Set(spec.dtype, static_cast<DType>(dtype));
  const std::size_t rank = Count<std::uint8_t>(archive, spec.shape, "a rank");
  Extents(archive, spec.shape, rank, spec.name);
  if (shared) Part(archive, tensor.part, spec);
}

void Summary(auto& archive, Is<TensorSummary> auto& summary) {
  archive.Number(summary.digest.high, "a digest");
  archive.Number(summary.digest.low, "a digest");
  archive.Float(summary.amax, "an amax");
}

void Label(auto& archive, auto& lineage, auto& step, auto& part, bool shared) {
  Text<std::uint16_t>(archive, lineage, "the lineage's length", "the lineage");
  archive.Number(step, "the step");
  if (!shared) return;
  auto rank = static_cast<std::uint32_t>(part.rank);
  auto ranks = static_cast<std::uint32_t>(part.ranks);
  archive.Number(rank, "the publisher's rank");
  archive.Number(ranks, "the number of publishers");
  if (ranks < 2 || ranks > kMostRanks || rank >= ranks) {
    archive.Refuse("expected a rank of 2 publishers or more, got rank " + std::to_string(rank) + " of " +
                   std::to_string(ranks));
  }
  archive.Set(part, VersionPart{static_cast<int>(rank), static_cast<int>(ranks)});
}

// It is there if anything is.
void NoiseFields(auto& archive, Is<Noise> auto& noise) {
  archive.Float(noise.sigma, "the noise's sigma");
  archive.Number(noise.seed, "the noise's seed");
  const std::string problem = NoiseProblem(noise);
  if (!problem.empty()) archive.Refuse("noise: " + problem);
}

void GetLayout(ArchiveReader& in, Contents& contents) {
  std::uint32_t count = 0;
  Header(in, contents.shared, count);
  // Refused before anything is allocated for so many tensors.
  if (count > kMostTensors || count > in.remaining() / (kSmallestLayout + kSummaryBytes)) {
    in.Fail(std::to_string(count) + " tensors do not fit the " + std::to_string(in.remaining()) + " bytes that follow");
  }
  contents.tensors.resize(count);
  for (LaidOutTensor& tensor : contents.tensors) Tensor(in, tensor, contents.shared);
}

TensorSummary GetSummary(ArchiveReader& in, const TensorSpec& spec) {
  TensorSummary summary;
  Summary(in, summary);
  const bool known = std::isfinite(summary.amax) && !std::signbit(summary.amax);
  if (!known && summary.amax != kUnknownAmax) {
    in.Fail(Quote(spec.name) + ": expected a finite amax of at least 0, or -1, got " + std::to_string(summary.amax));
  }
  return summary;
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
               ArchiveWriter& out) {
  Header(out, shared, static_cast<std::uint32_t>(tensors.size()));
  for (const std::uint32_t index : order) Tensor(out, tensors[index], shared);
}

void PutSummaries(std::span<const TensorSummary> summaries, std::span<const std::uint32_t> order, ArchiveWriter& out) {
  for (const std::uint32_t index : order) Summary(out, summaries[index]);
}

std::string NoiseProblem(const Noise& noise) {
  if (noise.own != 0) return "expected none of an engine's own";
  if (std::isfinite(noise.sigma) && noise.sigma > 0) return {};
  return "expected a finite sigma above 0, got " + std::to_string(noise.sigma);
}

void PutLabel(const Version& version, const VersionPart& part, const std::optional<Noise>& noise, ArchiveWriter& out) {
  Label(out, version.lineage, version.step, part, part.ranks != 1);
  if (noise) NoiseFields(out, *noise);
}

Contents Get(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known) {
  ArchiveReader in("manifest", bytes);
  Contents contents;
  if (known != nullptr && BeginsWith(bytes, known->form())) {
    in.GetBytes(known->form().size(), "the layout");
    contents.shared = known->shared();
    contents.layout = std::move(known);
  } else {
    GetLayout(in, contents);
  }
  const std::vector<LaidOutTensor>& tensors = contents.layout ? contents.layout->tensors() : contents.tensors;
  contents.summaries.reserve(tensors.size());
  for (const LaidOutTensor& tensor : tensors) contents.summaries.push_back(GetSummary(in, tensor.spec));
  Label(in, contents.lineage, contents.step, contents.part, contents.shared);
  if (in.remaining() != 0) NoiseFields(in, contents.noise.emplace());
  in.ExpectEnd();
  return contents;
}

}  // namespace layercast::manifest_form
