// Checks that several publishers have one version between them. Used by a receiver once it has a session with each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "src/tensor/manifest/manifest.h"

namespace layercast {

// What one publisher offers. Value; borrows what it refers to.
struct PublishedPart {
  const std::string& endpoint;
  const Manifest& manifest;
  const std::string& run;  // of the trainer; empty: the publisher knows none
};

// The places in `parts` of the version's ranks, in the ranks' order. Throws kFailedPrecondition, naming the publishers,
// if they offer different versions, or what different runs of a trainer have published under one name; kInvalidArgument
// if a rank of the version is missing or there twice.
std::vector<std::size_t> ByRank(std::span<const PublishedPart> parts);

}  // namespace layercast
