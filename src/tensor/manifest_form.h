// The bytes of a manifest's form, as MANIFEST.md specifies them. Used by the manifest, which checks what they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/version.h"
#include "src/base/bytes.h"
#include "src/tensor/manifest.h"

namespace layercast::manifest_form {

inline constexpr std::size_t kMostTensors = 4194304;
inline constexpr std::size_t kMostRanks = 1U << 20;
inline constexpr float kUnknownAmax = -1.0F;

// What is written of a manifest, in the order of `order`: positions of entries.
struct Listed {
  const std::vector<ManifestEntry>& entries;
  std::span<const std::uint32_t> order;
  const VersionPart& part;
};

void PutLayout(const Listed& listed, ByteWriter& out);
void PutValues(const Listed& listed, ByteWriter& out);
void PutLabel(const Version& version, const VersionPart& part, ByteWriter& out);

struct Fields {
  std::string lineage;
  std::uint64_t step = 0;
  std::vector<ManifestEntry> entries;
  VersionPart part;
};

// Throws kCorrupt on anything that the form does not allow; what its values say together is the manifest's to check.
Fields Get(std::span<const std::byte> bytes);

}  // namespace layercast::manifest_form
