// A loop over kernel tensors, which is shared among threads if that is faster. Used by committers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "engine_side/reload/layout/kernel_layout.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// Calls body(0) ... body(tensors.size() - 1) as WorkerPool::For does. If the tensors are small together, only this
// thread calls it: it is done with them before another thread is awake, and small layers are many.
inline void ForEachTensor(WorkerPool& pool, std::span<const KernelTensor> tensors,
                          const std::function<void(std::size_t)>& body) {
  constexpr std::uint64_t kWorthWaking = 128U << 10;  // bytes; some microseconds of digesting or copying
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size() && bytes < kWorthWaking; ++i) {
    bytes += tensors[i].num_bytes;
  }
  if (bytes >= kWorthWaking) return pool.For(tensors.size(), body);
  for (std::size_t i = 0; i < tensors.size(); ++i) body(i);
}

}  // namespace layercast
