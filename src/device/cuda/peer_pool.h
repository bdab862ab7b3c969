// Device memory that the other GPUs of the process can reach too. It is for NCCL: if two ranks live in one process, its
// kernels write from one GPU straight to the buffers that were given to it on the other. Memory of the pool behind
// CudaMemory (cuda_memory.h) can be reached by its own device alone, and such a write would end all work of the process
// on that device.
#pragma once

#include <cstddef>

#include "src/device/cuda/cuda_stream.h"

struct CUmemPoolHandle_st;  // cudaMemPool_t is a pointer to it

namespace layercast {

// Resource of a device; thread-safe. All of its memory must be freed before it is destroyed.
class PeerPool {
 public:
  // Opens no other device. Throws CUDA's errors, naming the device.
  explicit PeerPool(int device);
  PeerPool(const PeerPool&) = delete;
  PeerPool& operator=(const PeerPool&) = delete;
  ~PeerPool();

  // Allocate and free in the order of a stream of that device, as CudaMemory does.
  std::byte* Allocate(std::size_t bytes, const CudaStream& stream);
  void Deallocate(std::byte* address, const CudaStream& stream) noexcept;

 private:
  void LetPeersReachIt();

  const int device_;
  CUmemPoolHandle_st* handle_ = nullptr;
};

}  // namespace layercast
