// Whether publishers have one version between them. Used by a receiver when it has opened a session with each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/manifest.h"

namespace layercast {

// What one publisher offers; borrowed.
struct PublishedPart {
  const std::string& endpoint;
  const Manifest& manifest;
};

// Their places in `parts`, by rank. Throws kFailedPrecondition, naming the publishers, where they offer different
// versions, kInvalidArgument where a rank of the version is missing or there twice.
std::vector<std::size_t> ByRank(std::span<const PublishedPart> parts);

}  // namespace layercast
