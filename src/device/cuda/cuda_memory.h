// Memory of a CUDA device, and host memory that its copy engines can reach. The latter is slow to allocate and to free:
// wrap it in a CachingMemory (src/base/memory/caching_memory.h) where blocks come and go.
#pragma once

#include "layercast/memory.h"
#include "src/device/cuda/cuda_stream.h"

namespace layercast {

// Device memory in the order of a stream. It comes from a pool that the process has for each device. Freed memory stays
// with the process, mapped, for the next allocation on any stream; CUDA's default pool, whose settings belong to the
// host program, would unmap it.
//
// A block may be used by what is queued after Allocate, and what was queued before Deallocate may still use it. Another
// stream must wait for an event in between. Resource; one thread at a time, as for the stream, which must outlive it
// and its blocks.
class CudaMemory final : public MemoryResource {
 public:
  explicit CudaMemory(const CudaStream& stream) : stream_(stream) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  Device device() const override { return {Device::Kind::kCuda, stream_.device()}; }
  // Waits for the stream, and gives what is freed in the process's pool back to the device.
  void ReleaseFreed();

 private:
  const CudaStream& stream_;
};

// Page-locked host memory, which copies to and from the device access directly. Allocating and freeing it may wait for
// everything that runs on the device, in any stream. So it is allocated before kernels run that wait for their peers,
// and kept. The caller must know that no copy uses what is freed. Resource; thread-safe.
class PinnedMemory final : public MemoryResource {
 public:
  // `device` is named in errors; every device of the process can reach the memory.
  explicit PinnedMemory(int device) : device_(device) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

 private:
  const int device_;
};

}  // namespace layercast
