#include "src/tensor/manifest/manifest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/archive.h"
#include "src/base/check.h"
#include "src/base/utf8.h"
#include "src/tensor/manifest/manifest_form.h"

namespace layercast {
namespace {

std::vector<LaidOutTensor> TakeLayout(std::vector<ManifestEntry>& entries) {
  std::vector<LaidOutTensor> tensors;
  tensors.reserve(entries.size());
  for (ManifestEntry& entry : entries) tensors.push_back({std::move(entry.spec), std::move(entry.part)});
  return tensors;
}

std::vector<TensorSummary> SummariesOf(std::span<const ManifestEntry> entries) {
  std::vector<TensorSummary> summaries;
  summaries.reserve(entries.size());
  for (const ManifestEntry& entry : entries) summaries.push_back({entry.digest, entry.amax});
  return summaries;
}

void CheckPublishers(const VersionPart& part) {
  if (part.ranks >= 1 && part.rank >= 0 && part.rank < part.ranks &&
      static_cast<std::size_t>(part.ranks) <= manifest_form::kMostRanks) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, "manifest: expected a publisher's rank below their number, got rank " +
                                               std::to_string(part.rank) + " of " + std::to_string(part.ranks));
}

}  // namespace

Manifest::Manifest() : Manifest({}, 0, std::vector<ManifestEntry>()) {}

Manifest::Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries, VersionPart part,
                   std::shared_ptr<const ManifestLayout> known)
    : Manifest(std::move(lineage), step, ManifestLayout::Of(TakeLayout(entries), part.ranks != 1, std::move(known)),
               SummariesOf(entries), part) {}

Manifest::Manifest(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
                   std::vector<TensorSummary> summaries, VersionPart part)
    : layout_(std::move(layout)), summaries_(std::move(summaries)), part_(part) {
  LAYERCAST_CHECK(summaries_.size() == layout_->tensors().size() && layout_->shared() == (part.ranks != 1));
  const std::string problem = manifest_form::TextProblem(lineage, 0, manifest_form::kLongestLineage);
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: lineage " + Quote(lineage) + ": " + problem);
  }
  CheckPublishers(part);
  CheckSummaries();
  version_ = {.lineage = std::move(lineage), .step = step, .digest = DigestOfContents()};
}

Manifest Manifest::OfSpecs(std::string lineage, std::uint64_t step, std::span<const TensorSpec> specs,
                           std::shared_ptr<const ManifestLayout> known) {
  std::vector<LaidOutTensor> tensors;
  tensors.reserve(specs.size());
  for (const TensorSpec& spec : specs) tensors.push_back({spec});
  return OfLayout(std::move(lineage), step, ManifestLayout::Of(std::move(tensors), false, std::move(known)));
}

Manifest Manifest::OfLayout(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
                            VersionPart part) {
  std::vector<TensorSummary> summaries(layout->tensors().size());
  return {std::move(lineage), step, std::move(layout), std::move(summaries), part};
}

Manifest Manifest::With(const std::optional<Noise>& noise) const {
  Manifest with = *this;
  with.noise_ = noise;
  const std::string problem = noise ? manifest_form::NoiseProblem(*noise) : "";
  if (problem.empty()) return with;
  throw Error(ErrorCode::kInvalidArgument, "manifest: noise: " + problem);
}

std::vector<TensorSpec> Manifest::specs() const {
  std::vector<TensorSpec> specs;
  specs.reserve(size());
  for (const LaidOutTensor& tensor : layout_->tensors()) specs.push_back(tensor.spec);
  return specs;
}

void Manifest::CheckSummaries() {
  for (std::size_t i = 0; i < summaries_.size(); ++i) {
    float& amax = summaries_[i].amax;
    if (!std::isfinite(amax)) {
      throw Error(ErrorCode::kInvalidArgument, "manifest: tensor " + std::to_string(i) + " " +
                                                   Quote(layout_->tensors()[i].spec.name) + ": amax is not finite");
    }
    if (amax < 0.0F) amax = manifest_form::kUnknownAmax;
    if (amax == 0.0F) amax = 0.0F;  // not -0
  }
}

Digest Manifest::DigestOfContents() const {
  ArchiveWriter summaries;
  summaries.Reserve(size() * manifest_form::kSummaryBytes);
  manifest_form::PutSummaries(summaries_, layout_->by_name(), summaries);
  Digester contents = layout_->sorted();
  contents.Update(summaries.bytes());
  return contents.Finish();
}

std::vector<std::byte> Manifest::Encode() const {
  std::vector<std::uint32_t> as_listed(size());
  std::iota(as_listed.begin(), as_listed.end(), 0U);
  ArchiveWriter form;
  form.Reserve(layout_->form().size() + size() * manifest_form::kSummaryBytes + manifest_form::kMostLabelBytes);
  form.PutBytes(layout_->form());
  manifest_form::PutSummaries(summaries_, as_listed, form);
  manifest_form::PutLabel(version_, part_, noise_, form);
  return std::move(form).Take();
}

Manifest Manifest::Decode(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known) {
  manifest_form::Contents contents = manifest_form::Get(bytes, std::move(known));
  try {
    if (contents.layout == nullptr) {
      contents.layout = std::make_shared<const ManifestLayout>(std::move(contents.tensors), contents.shared);
    }
    return Manifest(std::move(contents.lineage), contents.step, std::move(contents.layout),
                    std::move(contents.summaries), contents.part)
        .With(contents.noise);
  } catch (const Error& error) {
    // What is an invalid argument from a caller is corrupt when it comes as bytes.
    throw Error(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace layercast
