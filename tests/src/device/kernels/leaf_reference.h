// The slow, obvious way to the digests of leaves: cut, and ask xxHash, which digest_test.cc pins to what is published.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/device/kernels/leaf_digests.h"

namespace layercast {

inline std::vector<Digest> ByXxHash(std::span<const std::byte> bytes) {
  std::vector<Digest> digests;
  do {
    const auto leaf = bytes.first(std::min<std::size_t>(bytes.size(), kLeafBytes));
    digests.push_back(DigestOf(leaf));
    bytes = bytes.subspan(leaf.size());
  } while (!bytes.empty());
  return digests;
}

}  // namespace layercast
