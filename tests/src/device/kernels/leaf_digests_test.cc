// The kernel for leaf digests on a device, compared with xxHash's own on the host. What it computes is checked without
// a device in xxh3_body_test.cc; here: launches, wide loads and the sum of four lanes.
#include "src/device/kernels/leaf_digests.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <span>
#include <vector>

#include "src/device/cuda/cuda_memory.h"
#include "tests/src/device/cuda/a_device.h"
#include "tests/src/device/kernels/leaf_reference.h"

namespace layercast {
namespace {

constexpr int kGuard = 0xa5;

std::vector<std::byte> RandomBytes(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void Copy(void* to, const void* from, std::size_t count, cudaMemcpyKind kind, const CudaStream& stream) {
  ASSERT_EQ(cudaMemcpyAsync(to, from, count, kind, stream.handle()), cudaSuccess);
  stream.Synchronize();
}

// Of bytes that lie `shift` past an aligned address of the device; behind the digests, one that must stay as it is.
std::vector<Digest> ByDevice(std::span<const std::byte> bytes, std::size_t shift, const CudaStream& stream) {
  CudaMemory device(stream);
  std::vector<Digest> digests(NumLeaves(bytes.size()) + 1);
  const std::size_t digest_bytes = digests.size() * sizeof(Digest);
  const Buffer there(device, shift + bytes.size());
  const Buffer leaves(device, digest_bytes);
  EXPECT_EQ(cudaMemsetAsync(leaves.data(), kGuard, digest_bytes, stream.handle()), cudaSuccess);
  Copy(there.data() + shift, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream);
  CudaLeafDigests(there.data() + shift, bytes.size(), reinterpret_cast<Digest*>(leaves.data()), stream.handle());
  Copy(digests.data(), leaves.data(), digest_bytes, cudaMemcpyDeviceToHost, stream);
  return digests;
}

void ExpectTheHosts(std::size_t count, std::size_t shift, const CudaStream& stream) {
  const std::vector<std::byte> bytes = RandomBytes(count);
  std::vector<Digest> expected = ByXxHash(bytes);
  constexpr std::uint64_t kGuardWord = 0x0101010101010101U * kGuard;
  expected.push_back({kGuardWord, kGuardWord});
  ASSERT_EQ(ByDevice(bytes, shift, stream), expected) << count << " bytes, " << shift << " past an aligned address";
}

TEST(CudaLeafDigests, EqualTheHostsAtEveryShortLengthAndEveryLoad) {
  LAYERCAST_NEEDS_CUDA();
  const CudaStream stream(0);
  for (std::size_t count = 0; count <= 1100; ++count) {
    for (const std::size_t shift : {0U, 4U, 1U}) ExpectTheHosts(count, shift, stream);
  }
}

TEST(CudaLeafDigests, EqualTheHostsOnWholeLeavesWithEveryTail) {
  LAYERCAST_NEEDS_CUDA();
  const CudaStream stream(0);
  std::mt19937 random(1);
  for (std::size_t leaves = 1; leaves <= 40; ++leaves) {  // of teams in a warp, and in a block, too
    for (const std::size_t tail : {std::size_t{0}, std::size_t{1}, std::size_t{240}, random() % kLeafBytes}) {
      ExpectTheHosts(leaves * kLeafBytes + tail, random() % 16, stream);
    }
  }
}

TEST(CudaLeafDigests, EqualTheHostsOnManyLeaves) {
  LAYERCAST_NEEDS_CUDA();
  const CudaStream stream(0);
  ExpectTheHosts((std::size_t{64} << 20) + 12'345, 0, stream);
}

}  // namespace
}  // namespace layercast
