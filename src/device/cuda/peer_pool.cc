#include "src/device/cuda/peer_pool.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/device/cuda/call.h"

namespace layercast {

PeerPool::PeerPool(int device) : device_(device) {
  const OnCudaDevice scope(device);
  cudaMemPoolProps wanted{};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  wanted.location.id = device;
  CheckCuda(cudaMemPoolCreate(&handle_, &wanted), "cudaMemPoolCreate", device);
  try {
    LetPeersReachIt();
  } catch (...) {
    static_cast<void>(cudaMemPoolDestroy(handle_));
    throw;
  }
}

PeerPool::~PeerPool() {
  GiveBackOnCuda(device_, "cudaMemPoolDestroy", [this] { return cudaMemPoolDestroy(handle_); });
}

void PeerPool::LetPeersReachIt() {
  int devices = 0;
  CheckCuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount", device_);
  std::vector<cudaMemAccessDesc> peers;
  for (int peer = 0; peer < devices; ++peer) {
    int reaches = 0;
    if (peer != device_) {
      CheckCuda(cudaDeviceCanAccessPeer(&reaches, peer, device_), "cudaDeviceCanAccessPeer", device_);
    }
    if (reaches == 0) continue;
    cudaMemAccessDesc access{};
    access.location.type = cudaMemLocationTypeDevice;
    access.location.id = peer;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    peers.push_back(access);
  }
  if (!peers.empty())
    CheckCuda(cudaMemPoolSetAccess(handle_, peers.data(), peers.size()), "cudaMemPoolSetAccess", device_);
}

std::byte* PeerPool::Allocate(std::size_t bytes, const CudaStream& stream) {
  const OnCudaDevice scope(device_);
  void* address = nullptr;
  // For no bytes CUDA gives no address, and a Buffer without an address owns nothing.
  CheckCuda(cudaMallocFromPoolAsync(&address, std::max<std::size_t>(bytes, 1), handle_, stream.handle()),
            "cudaMallocFromPoolAsync of " + std::to_string(bytes) + " bytes", device_);
  return static_cast<std::byte*>(address);
}

void PeerPool::Deallocate(std::byte* address, const CudaStream& stream) noexcept {
  GiveBackOnCuda(device_, "cudaFreeAsync", [&] { return cudaFreeAsync(address, stream.handle()); });
}

}  // namespace layercast
