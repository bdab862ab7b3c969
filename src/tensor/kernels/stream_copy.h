// Copies many bytes, most of which would have left the caches before anybody reads them: a trainer's into a snapshot, a
// version into its captured buffers, old bytes into the undo log.
#pragma once

#include <cstddef>

#include "src/base/threads/worker_pool.h"

namespace layercast {

// Like memcpy. Where bytes are many they are written past the caches, so that the lines they replace are not read
// first, which is a third of the traffic of a copy. The C library's memcpy does so only for a large part of the
// third-level cache, and a virtual machine is told the cache of its whole host.
void StreamCopy(const std::byte* from, std::size_t bytes, std::byte* to);
// The same by all threads of a pool.
void StreamCopy(const std::byte* from, std::size_t bytes, std::byte* to, WorkerPool& pool);

}  // namespace layercast
