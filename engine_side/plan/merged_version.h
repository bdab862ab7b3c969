// A version that several publishers have between them, as one: the manifest of whole tensors that plans are made for,
// and who has which part of each. Values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/model/placement.h"
#include "src/tensor/manifest.h"

namespace layercast {

// A part of a tensor, and what it is called in a fetch session: publishers' tensors are numbered through.
struct HeldPart {
  std::uint32_t number = 0;
  Box box;  // of the whole tensor; of one with more axes than a box has, the last are one
  bool operator==(const HeldPart&) const = default;
};

// By tensor of the merged manifest, in the order of the boxes' beginnings; at least one of each. Empty: there is one
// publisher, whose tensors are whole and in this order.
using HeldParts = std::vector<std::vector<HeldPart>>;

struct MergedVersion {
  Manifest manifest;
  HeldParts parts;
};

// What is known of a tensor in parts from what is of each part, in the order of HeldParts: the digest is of the parts'
// places and digests. Nothing, while one of them is not known.
TensorSummary Together(std::span<const HeldPart> parts, std::span<const TensorSummary> summaries);

// `manifests`: of one version, by rank of their publishers, which `endpoints` names. Throws kInvalidArgument naming
// tensor, publishers and boxes where they disagree about a tensor, where two of them have the same element, and where
// none has it.
MergedVersion Merge(std::span<const Manifest> manifests, std::span<const std::string> endpoints);

}  // namespace layercast
