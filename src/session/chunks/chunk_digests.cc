#include "src/session/chunks/chunk_digests.h"

#include <array>
#include <cstddef>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest_all.h"
#include "src/tensor/region_views.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

// A leaf that lies in several runs is packed first: it is small, and then in a cache.
void DigestLeavesFrom(PackedBytes from, std::span<Digest> leaves) {
  std::array<std::byte, kLeafBytes> packed;
  for (Digest& leaf : leaves) {
    const std::span<const std::byte> run = from.Run();
    if (run.size() >= kLeafBytes) {
      leaf = DigestOf(run.first(kLeafBytes));
      from.Skip(kLeafBytes);
    } else {
      leaf = DigestOf(std::span(packed).first(from.Read(packed)));
    }
  }
}

}  // namespace

Digest ChunkDigest(std::span<const Region> regions, std::span<const OfferedTensor> tensors) {
  return DigestOfViews(ViewsOf(tensors, regions));
}

void DigestChunks(const Schedule& schedule, std::span<const OfferedTensor> tensors, std::size_t first,
                  std::span<Digest> digests, WorkerPool& pool) {
  pool.For(digests.size(),
           [&](std::size_t i) { digests[i] = ChunkDigest(schedule.RegionsOf(schedule.chunks()[first + i]), tensors); });
}

Digest DigestOfViews(std::span<const RegionView> views) {
  std::vector<Digest> leaves(NumLeaves(NumBytes(views)));
  DigestLeavesFrom(PackedBytes(views, 0), leaves);
  return DigestOfLeaves(leaves);
}

Digest DigestOfViews(std::span<const RegionView> views, WorkerPool& pool) {
  const auto digest_leaves = [views](std::size_t first, std::span<Digest> leaves) {
    DigestLeavesFrom(PackedBytes(views, first * kLeafBytes), leaves);
  };
  return DigestInShares(NumBytes(views), digest_leaves, pool);
}

void CheckChunkDigest(const Digest& expected, const Digest& got, const std::function<std::string()>& name) {
  if (expected == got) return;
  throw Error(ErrorCode::kCorrupt, name() + ": digest expected " + expected.ToHex() + ", got " + got.ToHex());
}

}  // namespace layercast
