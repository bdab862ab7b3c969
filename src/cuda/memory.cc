#include "src/cuda/memory.h"

#include <algorithm>
#include <string>

#include "src/cuda/call.h"

namespace layercast {
namespace {

// Of no bytes CUDA gives no address, and a Buffer without one owns nothing.
std::size_t AtLeastOne(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

}  // namespace

std::byte* CudaMemory::Allocate(std::size_t bytes) {
  const OnCudaDevice scope(stream_.device());
  void* address = nullptr;
  CheckCuda(cudaMallocAsync(&address, AtLeastOne(bytes), stream_.handle()),
            "cudaMallocAsync of " + std::to_string(bytes) + " bytes", stream_.device());
  return static_cast<std::byte*>(address);
}

void CudaMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  GiveBackOnCuda(stream_.device(), "cudaFreeAsync", [&] { return cudaFreeAsync(address, stream_.handle()); });
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
