// Digests of many bytes by all threads of a pool. Used for what a publisher copies, a receiver checks, and an engine
// serves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "layercast/version.h"
#include "src/base/digest/digest.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// Blocks are cut into shares of whole leaves, so that no thread waits for the one that has the largest.
void DigestAll(std::span<const std::span<const std::byte>> blocks, std::span<Digest> digests, WorkerPool& pool);

// The leaves that a thread digests before it takes more: some ten microseconds' work, which is worth waking it for.
inline constexpr std::size_t kLeavesOfShare = 32;

// The digest of `bytes` bytes that lie anywhere. digest_leaves(first, leaves) computes the digests of some of their
// leaves, from number `first` on; it is called by several threads at once.
template <class DigestLeaves>
Digest DigestInShares(std::size_t bytes, const DigestLeaves& digest_leaves, WorkerPool& pool) {
  if (bytes <= kLeafBytes) {  // of these there are many
    Digest leaf;
    digest_leaves(0, std::span(&leaf, 1));
    return leaf;
  }
  std::vector<Digest> leaves(NumLeaves(bytes));
  pool.For((leaves.size() - 1) / kLeavesOfShare + 1, [&](std::size_t share) {
    const std::size_t first = share * kLeavesOfShare;
    digest_leaves(first, std::span(leaves).subspan(first, std::min(kLeavesOfShare, leaves.size() - first)));
  });
  return DigestOfLeaves(leaves);
}

}  // namespace layercast
