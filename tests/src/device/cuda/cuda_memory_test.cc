#include "src/device/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "layercast/error.h"
#include "src/base/memory/caching_memory.h"
#include "src/base/memory/counting_memory.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast {
namespace {

TEST(CudaMemory, IsTheDevicesAndAligned) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory device(stream);
  EXPECT_EQ(device.device(), (Device{Device::Kind::kCuda, 0}));
  const Buffer buffer(device, 1000);
  const Buffer empty(device, 0);
  EXPECT_NE(empty.data(), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kMemoryAlignment, 0U);
  cudaPointerAttributes attributes{};
  stream.Synchronize();
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
}

TEST(CudaMemory, SaysHowMuchItCouldNotGive) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory device(stream);
  constexpr std::size_t absurd = std::size_t{1} << 50;
  try {
    const Buffer buffer(device, absurd);
    FAIL() << "no device has that";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find(std::to_string(absurd)), std::string::npos) << error.what();
  }
}

// A host program may have its own wishes for the default one.
TEST(CudaMemory, IsNotOfCudasDefaultPool) {
  LAYERCAST_NEEDS_CUDA();
  const auto reserved = [] {
    cudaMemPool_t pool = nullptr;
    EXPECT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
    std::uint64_t bytes = 0;
    EXPECT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes), cudaSuccess);
    return bytes;
  };
  CudaStream stream(0);
  CudaMemory device(stream);
  const std::uint64_t before = reserved();
  const Buffer buffer(device, 64U << 20);
  stream.Synchronize();
  EXPECT_EQ(reserved(), before);
}

TEST(CudaMemory, IsKeptForTheNextRequestByACache) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory device(stream);
  CountingMemory counting(device);
  CachingMemory cache(counting);
  for (int i = 0; i < 10; ++i) const Buffer layer(cache, 1 << 20);
  EXPECT_EQ(counting.allocations(), 1U);
}

TEST(PinnedMemory, IsHostMemoryThatCopiesReach) {
  LAYERCAST_NEEDS_CUDA();
  PinnedMemory pinned(0);
  EXPECT_EQ(pinned.device(), Device());
  const Buffer buffer(pinned, 4096);
  buffer.span()[4095] = std::byte{7};
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer.data()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
}

}  // namespace
}  // namespace layercast
