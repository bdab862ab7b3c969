// The ordered list of a version's tensors, with what a receiver can use without reading their bytes. Made by
// publishers, read by receivers. MANIFEST.md beside this file specifies the canonical binary form and its digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/noise/noise.h"
#include "layercast/tensor.h"
#include "layercast/version.h"
#include "src/tensor/manifest/manifest_layout.h"

namespace layercast {

// What a manifest says of a tensor's values, which change with every version. Value.
struct TensorSummary {
  // The digest of the tensor's bytes, row-major. A stream's manifest has none, because it is made before the bytes
  // exist.
  Digest digest;
  // The largest magnitude, exact in fp32 for every type up to 32 bits; 0 for an empty or integer tensor.
  // Publishers refuse NaN and infinity, so it is always finite. Negative: not known (streams).
  float amax = -1.0F;

  bool operator==(const TensorSummary&) const = default;
};

// One tensor of a manifest that is to be made. Value.
struct ManifestEntry {
  TensorSpec spec;
  Digest digest;
  float amax = -1.0F;
  std::optional<TensorPart> part{};

  bool operator==(const ManifestEntry&) const = default;
};

// Value; copies share the layout.
class Manifest {
 public:
  // One tensor of a manifest, to which it refers.
  struct Entry {
    const TensorSpec& spec;
    const Digest& digest;
    const float& amax;
    const std::optional<TensorPart>& part;

    explicit operator ManifestEntry() const { return {spec, digest, amax, part}; }
  };

  // A manifest without tensors and without a lineage, of step 0.
  Manifest();
  // Throws kInvalidArgument as ManifestLayout does, and on whatever else MANIFEST.md does not allow. A negative amax
  // becomes -1. `known` is a layout that the manifest's probably equals, such as the last version's: it is then shared.
  Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries, VersionPart part = {},
           std::shared_ptr<const ManifestLayout> known = nullptr);
  // `summaries` has one for each tensor of the layout, in its order.
  Manifest(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
           std::vector<TensorSummary> summaries, VersionPart part = {});
  // The next two make a manifest before the bytes exist, without digests and magnitudes.
  static Manifest OfSpecs(std::string lineage, std::uint64_t step, std::span<const TensorSpec> specs,
                          std::shared_ptr<const ManifestLayout> known = nullptr);
  static Manifest OfLayout(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
                           VersionPart part = {});

  std::size_t size() const { return summaries_.size(); }  // how many tensors there are
  Entry entry(std::uint32_t index) const {
    const LaidOutTensor& tensor = layout_->tensors().at(index);
    return {tensor.spec, summaries_[index].digest, summaries_[index].amax, tensor.part};
  }
  auto entries() const {
    return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(size())) |
           std::views::transform([this](std::uint32_t index) { return entry(index); });
  }
  std::vector<TensorSpec> specs() const;  // in the manifest's order
  // As ManifestLayout's.
  std::int64_t Find(std::string_view name, const std::optional<TensorPart>& part = std::nullopt) const {
    return layout_->Find(name, part);
  }
  std::uint64_t total_bytes() const { return layout_->total_bytes(); }  // of a part of a tensor, that part's
  // Which of the version's manifests this is, if several publishers have one each.
  const VersionPart& part() const { return part_; }
  // What engines are to add to their norms. It is in the form, and so in what is signed, but in no digest: the
  // version's weights are the same without it, and are what engines export and lend.
  const std::optional<Noise>& noise() const { return noise_; }
  // The same manifest with that noise. Throws kInvalidArgument on a sigma that is no finite number above 0, and on one
  // of an engine's own.
  Manifest With(const std::optional<Noise>& noise) const;

  // The version's digest depends on the weights alone, not on the version's name or on the order of the tensors.
  const Version& version() const { return version_; }
  // The digest of names, dtypes, shapes and parts alone. It is equal for all versions that one load plan is replayed
  // for.
  const Digest& layout_digest() const { return layout_->digest(); }
  const std::shared_ptr<const ManifestLayout>& layout() const { return layout_; }  // owned by its manifests
  const std::vector<TensorSummary>& summaries() const { return summaries_; }       // by tensor

  std::vector<std::byte> Encode() const;
  // Throws kCorrupt on anything but a canonical manifest; never reads outside `bytes`. If the layout is `known`, it is
  // shared and not read again. Manifest::Decode(b).Encode() == b.
  static Manifest Decode(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known = nullptr);

 private:
  void CheckSummaries();
  Digest DigestOfContents() const;

  std::shared_ptr<const ManifestLayout> layout_;
  std::vector<TensorSummary> summaries_;
  Version version_;
  VersionPart part_;
  std::optional<Noise> noise_;
};

}  // namespace layercast
