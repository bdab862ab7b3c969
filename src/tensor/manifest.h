// The ordered list of a version's tensors, with what a receiver can use without reading their bytes.
// Value. MANIFEST.md beside this file specifies the canonical binary form and its digest.
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

#include "layercast/tensor.h"
#include "layercast/version.h"
#include "src/tensor/manifest_layout.h"

namespace layercast {

// What is new of a tensor with every version.
struct TensorSummary {
  // Of the tensor's bytes, row-major. None in a stream's manifest, which is made before the bytes exist.
  Digest digest;
  // Largest magnitude, exact in fp32 for every type up to 32 bits; 0 for an empty or integer tensor.
  // Publishers refuse NaN and infinity, so it is always finite. Negative: not known (streams).
  float amax = -1.0F;

  bool operator==(const TensorSummary&) const = default;
};

// One tensor of a manifest to be made.
struct ManifestEntry {
  TensorSpec spec;
  Digest digest;
  float amax = -1.0F;
  std::optional<TensorPart> part{};

  bool operator==(const ManifestEntry&) const = default;
};

class Manifest {
 public:
  // One tensor, where it lies in the manifest.
  struct Entry {
    const TensorSpec& spec;
    const Digest& digest;
    const float& amax;
    const std::optional<TensorPart>& part;

    explicit operator ManifestEntry() const { return {spec, digest, amax, part}; }
  };

  // No tensors, no lineage, step 0.
  Manifest();
  // Throws kInvalidArgument as ManifestLayout does, and on what else MANIFEST.md does not allow. A negative amax
  // becomes -1. `known`: the layout is probably that.
  Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries, VersionPart part = {},
           std::shared_ptr<const ManifestLayout> known = nullptr);
  // `summaries`: by tensor.
  Manifest(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
           std::vector<TensorSummary> summaries, VersionPart part = {});
  // Before the bytes exist: no digests, no magnitudes.
  static Manifest OfSpecs(std::string lineage, std::uint64_t step, std::span<const TensorSpec> specs,
                          std::shared_ptr<const ManifestLayout> known = nullptr);
  static Manifest OfLayout(std::string lineage, std::uint64_t step, std::shared_ptr<const ManifestLayout> layout,
                           VersionPart part = {});

  std::size_t size() const { return summaries_.size(); }  // tensors
  Entry entry(std::uint32_t index) const {
    const LaidOutTensor& tensor = layout_->tensors().at(index);
    return {tensor.spec, summaries_[index].digest, summaries_[index].amax, tensor.part};
  }
  auto entries() const {
    return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(size())) |
           std::views::transform([this](std::uint32_t index) { return entry(index); });
  }
  std::vector<TensorSpec> specs() const;  // in its order
  // Index of the tensor called `name`, or -1.
  std::int64_t Find(std::string_view name) const { return layout_->Find(name); }
  std::uint64_t total_bytes() const { return layout_->total_bytes(); }  // that are here: of a part, its own
  // Which of a version's manifests this is.
  const VersionPart& part() const { return part_; }

  // The digest is that of the weights, whatever version they are called and in whatever order they are listed.
  const Version& version() const { return version_; }
  // Of names, dtypes, shapes and parts alone: equal for every version that one load plan can be replayed for.
  const Digest& layout_digest() const { return layout_->digest(); }
  const std::shared_ptr<const ManifestLayout>& layout() const { return layout_; }  // its owners are manifests
  const std::vector<TensorSummary>& summaries() const { return summaries_; }       // by tensor

  std::vector<std::byte> Encode() const;
  // Throws kCorrupt on anything but a canonical manifest; never reads outside `bytes`. `known`: the layout is probably
  // that, and if so it is not read again. Manifest::Decode(b).Encode() == b.
  static Manifest Decode(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known = nullptr);

 private:
  void CheckSummaries();
  Digest DigestOfContents() const;

  std::shared_ptr<const ManifestLayout> layout_;
  std::vector<TensorSummary> summaries_;
  Version version_;
  VersionPart part_;
};

}  // namespace layercast
