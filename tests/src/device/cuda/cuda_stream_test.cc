#include "src/device/cuda/cuda_stream.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "src/device/cuda/cuda_memory.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast {
namespace {

TEST(CudaStream, DoesWhatIsQueuedInOrder) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory device(stream);
  PinnedMemory pinned(0);
  const Buffer there(device, 1 << 20);
  const Buffer here(pinned, 1 << 20);
  for (int value = 0; value < 32; ++value) {
    ASSERT_EQ(cudaMemsetAsync(there.data(), value, there.size(), stream.handle()), cudaSuccess);
  }
  std::memset(here.data(), 0xFF, here.size());
  ASSERT_EQ(cudaMemcpyAsync(here.data(), there.data(), here.size(), cudaMemcpyDeviceToHost, stream.handle()),
            cudaSuccess);
  stream.Synchronize();
  for (const std::byte byte : here.span()) ASSERT_EQ(byte, std::byte{31});
}

TEST(CudaEvent, IsReachedWhenWhatWasQueuedBeforeItIsDone) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CudaMemory device(stream);
  PinnedMemory pinned(0);
  const Buffer there(device, 64U << 20);
  const Buffer here(pinned, there.size());
  ASSERT_EQ(cudaMemsetAsync(there.data(), 1, there.size(), stream.handle()), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(there.data(), 2, there.size(), stream.handle()), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(here.data(), there.data(), here.size(), cudaMemcpyDeviceToHost, stream.handle()),
            cudaSuccess);
  CudaEvent read(0);
  read.Record(stream);
  read.Synchronize();
  EXPECT_TRUE(read.IsDone());
  EXPECT_EQ(here.data()[0], std::byte{2});
  EXPECT_EQ(here.span().back(), std::byte{2});
}

TEST(CudaStream, MovesWithItsHandle) {
  LAYERCAST_NEEDS_CUDA();
  CudaStream stream(0);
  CUstream_st* const handle = stream.handle();
  const CudaStream moved = std::move(stream);
  EXPECT_EQ(moved.handle(), handle);
  moved.Synchronize();
}

}  // namespace
}  // namespace layercast
