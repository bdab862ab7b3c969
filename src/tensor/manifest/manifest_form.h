// Writes and reads a manifest's binary form, as MANIFEST.md specifies it. Used by the manifest, which checks what the
// values say together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/version.h"
#include "src/base/bytes/archive.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast::manifest_form {

inline constexpr std::size_t kMostTensors = 4194304;
inline constexpr std::size_t kMostRanks = 1U << 20;
inline constexpr float kUnknownAmax = -1.0F;
inline constexpr std::size_t kLongestLineage = 1024;
inline constexpr std::size_t kSummaryBytes = 16 + 4;
inline constexpr std::size_t kMostLabelBytes = 2 + kLongestLineage + 8 + 4 + 4 + 4 + 8;

// What is wrong with a text, so that a form may not hold it. Empty: nothing is.
std::string TextProblem(std::string_view text, std::size_t shortest, std::size_t longest);

// Likewise of a version's noise.
std::string NoiseProblem(const Noise& noise);

// The Put functions append to `out`. `order` has the tensors' positions, in the order in which they are written;
// `shared` says that other publishers have tensors of the version too.
void PutLayout(std::span<const LaidOutTensor> tensors, std::span<const std::uint32_t> order, bool shared,
               ArchiveWriter& out);
void PutSummaries(std::span<const TensorSummary> summaries, std::span<const std::uint32_t> order, ArchiveWriter& out);
void PutLabel(const Version& version, const VersionPart& part, const std::optional<Noise>& noise, ArchiveWriter& out);

// What a form holds. Value.
struct Contents {
  std::string lineage;
  std::uint64_t step = 0;
  std::shared_ptr<const ManifestLayout> layout;  // the known one; null: it is another, made of `tensors` and `shared`
  std::vector<LaidOutTensor> tensors;
  bool shared = false;
  std::vector<TensorSummary> summaries;
  VersionPart part;
  std::optional<Noise> noise;
};

// Reads a form. `known` is a layout that it may have, which then is not read again. Throws kCorrupt on anything that
// the form does not allow.
Contents Get(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known);

}  // namespace layercast::manifest_form
