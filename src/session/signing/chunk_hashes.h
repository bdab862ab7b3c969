// The hashes of chunks (SHA-256), of versions that are signed: a publisher computes them of a version's bytes, a
// receiver of what arrived, and compares. chunk_digests.h has the digests, which every session has.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/hash/sha256.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/device_bytes.h"
#include "src/transport/channel/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

// Of a chunk that is longer, blocks of so many bytes are hashed by several threads, and then their hashes.
inline constexpr std::size_t kHashBlockBytes = std::size_t{64} << 10;

// The hash of the views' bytes, one after the other, in host memory. `pool` shares the work; null: the calling thread
// does it.
Hash HashOfViews(std::span<const RegionView> views, WorkerPool* pool);
// Those of a schedule's chunks from number `first` on, `count` of them. An offer that lies on a device is hashed on the
// host, to which `device` brings it.
std::vector<Hash> HashChunks(const Schedule& schedule, const Offer& offer, std::size_t first, std::size_t count,
                             WorkerPool& pool, DeviceBytes* device);
// Throws kCorrupt, naming the chunk as `name` does, unless what arrived is what its publisher has signed.
void CheckChunkHash(const Hash& expected, const Hash& got, const std::function<std::string()>& name);

}  // namespace layercast
