// Memory of a CUDA device, and host memory that its copy engines reach. Host memory of this kind is not cheap to get,
// nor to give back: wrap it in a CachingMemory (src/base/caching_memory.h) where blocks come and go.
#pragma once

#include "layercast/memory.h"
#include "src/cuda/stream.h"

namespace layercast {

// Device memory in the order of a stream, from a pool that the process has for each device: what is given back stays
// with the process, mapped, for the next request of any stream. CUDA's default pool, whose settings are the host
// program's, would unmap it. A block may be used by what is queued after Allocate, and what was queued
// before Deallocate may still use it. Another stream must wait for an event in between. The stream outlives it, and its
// blocks. One thread at a time, the stream's.
class CudaMemory final : public MemoryResource {
 public:
  explicit CudaMemory(const CudaStream& stream) : stream_(stream) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  Device device() const override { return {Device::Kind::kCuda, stream_.device()}; }

 private:
  const CudaStream& stream_;
};

// Page-locked host memory, which copies to and from the device read and write by themselves. To take some, and to give
// it back, may wait for all that runs on the device, in whatever stream: so it is taken before kernels run that wait
// for their peers, and kept. The caller knows that no copy uses what is given back. Thread-safe.
class PinnedMemory final : public MemoryResource {
 public:
  // `device`: named in errors; every device of the process reaches it.
  explicit PinnedMemory(int device) : device_(device) {}

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

 private:
  const int device_;
};

}  // namespace layercast
