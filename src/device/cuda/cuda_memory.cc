#include "src/device/cuda/cuda_memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "src/device/cuda/call.h"
#include "src/device/cuda/per_device.h"

namespace layercast {
namespace {

// Makes a pool in which freed memory stays mapped, for whoever allocates next.
cudaMemPool_t MakePool(int device) {
  const OnCudaDevice scope(device);
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device;
  cudaMemPool_t pool = nullptr;
  CheckCuda(cudaMemPoolCreate(&pool, &wanted), "cudaMemPoolCreate", device);
  auto keeps = std::numeric_limits<std::uint64_t>::max();
  const cudaError_t set = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keeps);
  if (set != cudaSuccess) static_cast<void>(cudaMemPoolDestroy(pool));
  CheckCuda(set, "cudaMemPoolSetAttribute", device);
  return pool;
}

// The pools are never destroyed, because blocks may be freed as long as the process lives.
cudaMemPool_t PoolOf(int device) {
  static auto& pools = *new PerDevice<cudaMemPool_t>(MakePool, device);
  return pools.Of(device);
}

// For no bytes CUDA gives no address, and a Buffer without an address owns nothing.
std::size_t AtLeastOne(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

}  // namespace

std::byte* CudaMemory::Allocate(std::size_t bytes) {
  const OnCudaDevice scope(stream_.device());
  void* address = nullptr;
  CheckCuda(cudaMallocFromPoolAsync(&address, AtLeastOne(bytes), PoolOf(stream_.device()), stream_.handle()),
            "cudaMallocFromPoolAsync of " + std::to_string(bytes) + " bytes", stream_.device());
  return static_cast<std::byte*>(address);
}

void CudaMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  GiveBackOnCuda(stream_.device(), "cudaFreeAsync", [&] { return cudaFreeAsync(address, stream_.handle()); });
}

void CudaMemory::ReleaseFreed() {
  stream_.Synchronize();
  const OnCudaDevice scope(stream_.device());
  CheckCuda(cudaMemPoolTrimTo(PoolOf(stream_.device()), 0), "cudaMemPoolTrimTo", stream_.device());
}

std::byte* PinnedMemory::Allocate(std::size_t bytes) {
  const OnCudaDevice scope(device_);
  void* address = nullptr;
  CheckCuda(cudaHostAlloc(&address, AtLeastOne(bytes), cudaHostAllocPortable),
            "cudaHostAlloc of " + std::to_string(bytes) + " bytes", device_);
  return static_cast<std::byte*>(address);
}

void PinnedMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  GiveBackOnCuda(device_, "cudaFreeHost", [&] { return cudaFreeHost(address); });
}

}  // namespace layercast
