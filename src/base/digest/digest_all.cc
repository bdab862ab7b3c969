#include "src/base/digest/digest_all.h"

#include "src/base/check.h"

namespace layercast {
namespace {

// Some neighbouring leaves of a block, and where their digests go.
struct LeafShare {
  std::span<const std::byte> bytes;
  std::size_t first = 0;  // of all blocks' leaves
};

std::span<const std::byte> Share(std::span<const std::byte> block, std::size_t first_leaf) {
  const std::size_t begin = first_leaf * kLeafBytes;
  return block.subspan(begin, std::min(kLeavesOfShare * kLeafBytes, block.size() - begin));
}

}  // namespace

void DigestAll(std::span<const std::span<const std::byte>> blocks, std::span<Digest> digests, WorkerPool& pool) {
  LAYERCAST_CHECK(blocks.size() == digests.size());
  std::size_t leaves = 0;
  for (const std::span<const std::byte> block : blocks) leaves += NumLeaves(block.size());
  // Small blocks are many: this thread is done with them before another one is awake.
  if (leaves <= kLeavesOfShare) {
    std::ranges::transform(blocks, digests.begin(), [](std::span<const std::byte> block) { return DigestOf(block); });
    return;
  }
  std::vector<LeafShare> shares;
  leaves = 0;
  for (const std::span<const std::byte> block : blocks) {
    const std::size_t of_block = NumLeaves(block.size());
    for (std::size_t leaf = 0; leaf < of_block; leaf += kLeavesOfShare)
      shares.push_back({Share(block, leaf), leaves + leaf});
    leaves += of_block;
  }
  std::vector<Digest> of_leaves(leaves);
  pool.For(shares.size(), [&](std::size_t i) {
    DigestLeaves(shares[i].bytes, std::span(of_leaves).subspan(shares[i].first, NumLeaves(shares[i].bytes.size())));
  });
  std::size_t first = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t of_block = NumLeaves(blocks[i].size());
    digests[i] = DigestOfLeaves(std::span(of_leaves).subspan(first, of_block));
    first += of_block;
  }
}

}  // namespace layercast
