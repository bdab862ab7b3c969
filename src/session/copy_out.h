// Copies a chunk out of memory that a channel has handed out views of, by several threads where that pays. Used by
// ChunkWindow.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/base/worker_pool.h"
#include "src/tensor/region.h"

namespace layercast {

// Packs the views' bytes to `destination`, as PackAll does; views of the copies. `pool` shares the work; null: it is
// all done here.
std::vector<RegionView> CopyOut(std::span<const RegionView> views, std::byte* destination, WorkerPool* pool);

}  // namespace layercast
