// Copies a chunk out of memory that a channel has handed out views of, with several threads if that pays. Used by
// ChunkWindow.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/threads/worker_pool.h"
#include "src/tensor/region.h"

namespace layercast {

// Packs the views' bytes to `destination` as PackAll does, and returns views of the copies. `pool` shares the work; if
// it is null, the calling thread does all of it.
std::vector<RegionView> CopyOut(std::span<const RegionView> views, std::byte* destination, WorkerPool* pool);

}  // namespace layercast
