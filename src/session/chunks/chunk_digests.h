// The digests of chunks: a publisher computes them of a version's bytes for a schedule, a receiver of what arrived, and
// compares.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "layercast/version.h"
#include "src/base/threads/worker_pool.h"
#include "src/tensor/region.h"
#include "src/transport/channel/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

// The digest of a chunk in host memory: of its regions' bytes, one after the other, rows packed.
Digest ChunkDigest(std::span<const Region> regions, std::span<const OfferedTensor> tensors);
// Those of a schedule's chunks from number `first` on, as many as `digests` has room for.
void DigestChunks(const Schedule& schedule, std::span<const OfferedTensor> tensors, std::size_t first,
                  std::span<Digest> digests, WorkerPool& pool);
Digest DigestOfViews(std::span<const RegionView> views);
Digest DigestOfViews(std::span<const RegionView> views, WorkerPool& pool);
// Throws kCorrupt, naming the chunk as `name` does, unless what arrived is what its publisher had.
void CheckChunkDigest(const Digest& expected, const Digest& got, const std::function<std::string()>& name);

}  // namespace layercast
