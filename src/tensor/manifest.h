// The ordered list of a version's tensors, with what a receiver can use without reading their bytes.
// Value. MANIFEST.md beside this file specifies the canonical binary form and its digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/tensor.h"
#include "layercast/version.h"

namespace layercast {

struct ManifestEntry {
  TensorSpec spec;
  // Of the tensor's bytes, row-major. None in a stream's manifest, which is made before the bytes exist.
  Digest digest;
  // Largest magnitude, exact in fp32 for every type up to 32 bits; 0 for an empty or integer tensor.
  // Publishers refuse NaN and infinity, so it is always finite. Negative: not known (streams).
  float amax = -1.0F;
  // Where another publisher holds the rest of the tensor: all of the above is of this part alone.
  std::optional<TensorPart> part{};

  bool operator==(const ManifestEntry&) const = default;
};

class Manifest {
 public:
  // No tensors, no lineage, step 0.
  Manifest();
  // Throws kInvalidArgument on a repeated name, and on what MANIFEST.md does not allow. A negative amax
  // becomes -1; a part that is all of its tensor is none.
  Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries, VersionPart part = {});
  // Before the bytes exist: no digests, no magnitudes.
  static Manifest OfSpecs(std::string lineage, std::uint64_t step, std::span<const TensorSpec> specs);

  const std::vector<ManifestEntry>& entries() const { return entries_; }
  const ManifestEntry& entry(std::uint32_t index) const { return entries_.at(index); }
  std::vector<TensorSpec> specs() const;  // in its order
  // Index of the tensor called `name`, or -1.
  std::int64_t Find(std::string_view name) const;
  std::uint64_t total_bytes() const { return total_bytes_; }  // that are here: of a part, its own
  // Which of a version's manifests this is.
  const VersionPart& part() const { return part_; }

  // The digest is that of the weights, whatever version they are called and in whatever order they are listed.
  const Version& version() const { return version_; }
  // Of names, dtypes, shapes and parts alone: equal for every version that one load plan can be replayed for.
  const Digest& layout_digest() const { return layout_digest_; }

  std::vector<std::byte> Encode() const;
  // Throws kCorrupt on anything but a canonical manifest; never reads outside `bytes`.
  // Manifest::Decode(b).Encode() == b.
  static Manifest Decode(std::span<const std::byte> bytes);

 private:
  void CheckEntries();  // and adds up total_bytes_
  void CheckPart(std::size_t index, ManifestEntry& entry) const;
  void IndexNames();

  std::vector<ManifestEntry> entries_;
  std::vector<std::uint32_t> by_name_;  // entry indices, sorted by name
  std::uint64_t total_bytes_ = 0;
  Version version_;
  VersionPart part_;
  Digest layout_digest_;
};

}  // namespace layercast
