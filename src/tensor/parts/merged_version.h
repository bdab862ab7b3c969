// A version that several publishers hold between them, seen as one: the manifest of its whole tensors, for which plans
// are made, and who holds which part of each tensor. Values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/box.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// A part of a tensor that one publisher holds, and its number in a fetch session, where the tensors of all publishers
// are numbered consecutively.
struct HeldPart {
  std::uint32_t number = 0;
  Box box;  // of the whole tensor; if that has more axes than a box can, its last axes are joined
  bool operator==(const HeldPart&) const = default;
};

// For each tensor of the merged manifest its parts, at least one, in the order in which their boxes begin. Empty if
// there is one publisher: its tensors are whole and in the manifest's order.
using HeldParts = std::vector<std::vector<HeldPart>>;

struct MergedVersion {
  Manifest manifest;
  HeldParts parts;
};

// The summary of a tensor from the summaries of its parts, both in the order of HeldParts. The digest is computed from
// the parts' boxes and digests. Empty as long as the digest of any part is not known.
TensorSummary Together(std::span<const HeldPart> parts, std::span<const TensorSummary> summaries);

// Merges the manifests of one version, which are in the order of their publishers' ranks; `endpoints` names the
// publishers. Throws kInvalidArgument, naming tensor, publishers and boxes, if publishers disagree about a tensor, if
// two of them hold the same element, or if none holds it.
MergedVersion Merge(std::span<const Manifest> manifests, std::span<const std::string> endpoints);

}  // namespace layercast
