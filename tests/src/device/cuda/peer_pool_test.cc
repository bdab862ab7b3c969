#include "src/device/cuda/peer_pool.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/device/cuda/call.h"
#include "src/device/cuda/cuda_memory.h"
#include "tests/src/device/cuda/a_device.h"
#include "tests/src/device/kernels/leaf_reference.h"

namespace layercast {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

void Check(cudaError_t error) { CheckCuda(error, "a test's copy", 0); }

// Reads memory of device 0's pool by a kernel on `reader`.
void ExpectReadBy(int reader) {
  const CudaStream owner(0);
  PeerPool pool(0);
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  std::byte* const there = pool.Allocate(kBytes, owner);
  Check(cudaMemcpyAsync(there, bytes.data(), kBytes, cudaMemcpyHostToDevice, owner.handle()));
  owner.Synchronize();

  const CudaStream stream(reader);
  CudaMemory memory(stream);
  std::vector<Digest> digests(NumLeaves(kBytes));
  const Buffer leaves(memory, digests.size() * sizeof(Digest));
  const OnCudaDevice scope(reader);
  CudaLeafDigests(there, kBytes, reinterpret_cast<Digest*>(leaves.data()), stream.handle());
  Check(cudaMemcpyAsync(digests.data(), leaves.data(), leaves.size(), cudaMemcpyDeviceToHost, stream.handle()));
  stream.Synchronize();
  pool.Deallocate(there, owner);
  EXPECT_EQ(digests, ByXxHash(bytes));
}

TEST(PeerPool, GivesMemoryOfItsDevice) {
  LAYERCAST_NEEDS_CUDA();
  ExpectReadBy(0);
}

TEST(PeerPool, IsReadByKernelsOfAnotherGpu) {
  LAYERCAST_NEEDS_CUDA();
  if (ProbeCuda().devices < 2) GTEST_SKIP() << "one GPU";
  int reaches = 0;
  Check(cudaDeviceCanAccessPeer(&reaches, 1, 0));
  if (reaches == 0) GTEST_SKIP() << "GPU 1 does not reach GPU 0";
  ExpectReadBy(1);
}

}  // namespace
}  // namespace layercast
