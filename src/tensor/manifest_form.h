// The bytes of a manifest's form, as MANIFEST.md specifies them. Used by the manifest, which checks what they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/version.h"
#include "src/base/bytes.h"
#include "src/tensor/manifest.h"

namespace layercast::manifest_form {

inline constexpr std::size_t kMostTensors = 4194304;
inline constexpr std::size_t kMostRanks = 1U << 20;
inline constexpr float kUnknownAmax = -1.0F;
inline constexpr std::size_t kLongestLineage = 1024;
inline constexpr std::size_t kSummaryBytes = 16 + 4;
inline constexpr std::size_t kMostLabelBytes = 2 + kLongestLineage + 8 + 4 + 4;

// Empty: such a text may be in a form; else what is wrong with it.
std::string TextProblem(std::string_view text, std::size_t shortest, std::size_t longest);

// In the order of `order`: positions of tensors. `shared`: with other publishers.
void PutLayout(std::span<const LaidOutTensor> tensors, std::span<const std::uint32_t> order, bool shared,
               ByteWriter& out);
void PutSummaries(std::span<const TensorSummary> summaries, std::span<const std::uint32_t> order, ByteWriter& out);
void PutLabel(const Version& version, const VersionPart& part, ByteWriter& out);

struct Fields {
  std::string lineage;
  std::uint64_t step = 0;
  std::shared_ptr<const ManifestLayout> layout;  // the one that was known; null: it is another, and follows
  std::vector<LaidOutTensor> tensors;
  bool shared = false;
  std::vector<TensorSummary> summaries;
  VersionPart part;
};

// Throws kCorrupt on anything that the form does not allow; what its values say together is the manifest's to check.
Fields Get(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known);

}  // namespace layercast::manifest_form
