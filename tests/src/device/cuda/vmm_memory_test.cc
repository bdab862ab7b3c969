#include "src/device/cuda/vmm_memory.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/src/device/cuda/a_device.h"

namespace layercast {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t FreeOnDevice() {
  std::size_t free = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

void Fill(const Buffer& buffer, int value) {
  CudaStream stream(0);
  ASSERT_EQ(cudaMemsetAsync(buffer.data(), value, buffer.size(), stream.handle()), cudaSuccess);
  stream.Synchronize();
}

bool Holds(const Buffer& buffer, int value) {
  CudaStream stream(0);
  std::vector<std::byte> host(buffer.size());
  EXPECT_EQ(cudaMemcpyAsync(host.data(), buffer.data(), host.size(), cudaMemcpyDefault, stream.handle()), cudaSuccess);
  stream.Synchronize();
  return std::ranges::all_of(host, [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

TEST(VmmMemory, IsZeroAlignedAndTheDevices) {
  LAYERCAST_NEEDS_CUDA();
  VmmMemory memory(0);
  EXPECT_EQ(memory.device(), (Device{Device::Kind::kCuda, 0}));
  const Buffer odd(memory, 1000);
  const Buffer large(memory, 5 * kMiB);
  const Buffer empty(memory, 0);
  EXPECT_NE(empty.data(), nullptr);
  for (const Buffer* const each : {&odd, &large}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(each->data()) % kMemoryAlignment, 0U);
    EXPECT_TRUE(Holds(*each, 0));
  }
}

TEST(VmmMemory, WhatIsKeptIsThereAgainAtTheSameAddresses) {
  LAYERCAST_NEEDS_CUDA();
  VmmMemory memory(0);
  const Buffer first(memory, 3 * kMiB);
  const Buffer second(memory, 1000);
  const Buffer third(memory, 4 * kMiB);
  Fill(first, 1);
  Fill(second, 2);
  Fill(third, 3);
  const std::size_t awake = FreeOnDevice();
  const std::size_t given_back = memory.Sleep(SleepLevel::kKeep);
  EXPECT_GE(given_back, 7 * kMiB + 1000);
  EXPECT_EQ(FreeOnDevice(), awake + given_back);
  EXPECT_EQ(memory.Sleep(SleepLevel::kDiscard), 0U);  // it sleeps on, and keeps
  memory.Wake();
  EXPECT_EQ(FreeOnDevice(), awake);
  EXPECT_TRUE(Holds(first, 1));
  EXPECT_TRUE(Holds(second, 2));
  EXPECT_TRUE(Holds(third, 3));
}

TEST(VmmMemory, WhatIsDiscardedIsZeroAtTheSameAddresses) {
  LAYERCAST_NEEDS_CUDA();
  VmmMemory memory(0);
  const Buffer buffer(memory, 3 * kMiB);
  const std::size_t awake = FreeOnDevice();
  for (int round = 1; round <= 20; ++round) {
    Fill(buffer, round);
    EXPECT_GE(memory.Sleep(SleepLevel::kDiscard), 3 * kMiB);
    EXPECT_TRUE(memory.asleep());
    EXPECT_THROW(static_cast<void>(Buffer(memory, 1)), Error);
    memory.Wake();
    memory.Wake();
    EXPECT_TRUE(Holds(buffer, 0));
  }
  EXPECT_EQ(FreeOnDevice(), awake);
  Fill(buffer, 21);
  EXPECT_TRUE(Holds(buffer, 21));
  EXPECT_TRUE(Holds(Buffer(memory, kMiB), 0));
}

// A driver that has memory for so many more blocks: what a trainer has taken meanwhile is missing.
int blocks_left = 1000;
const VmmFunctions& real() {
  static const VmmFunctions functions = LoadVmm();
  return functions;
}
CUresult CreateWhileThereIs(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* wanted,
                            unsigned long long flags) {
  return blocks_left-- > 0 ? real().create(handle, size, wanted, flags) : CUDA_ERROR_OUT_OF_MEMORY;
}

TEST(VmmMemory, SleepsOnWhereTheDeviceHasNoRoom) {
  LAYERCAST_NEEDS_CUDA();
  VmmFunctions functions = real();
  functions.create = CreateWhileThereIs;
  VmmMemory memory(0, functions);
  const Buffer small(memory, 2 * kMiB);
  const Buffer large(memory, 4 * kMiB);
  Fill(small, 1);
  Fill(large, 2);
  memory.Sleep(SleepLevel::kKeep);
  const std::size_t asleep = FreeOnDevice();
  for (blocks_left = 0; blocks_left < 2;) {
    const int had = blocks_left;
    try {
      memory.Wake();
      FAIL() << "there is no room for it";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
      EXPECT_NE(std::string(error.what()).find("cuMemCreate"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(memory.asleep());
    EXPECT_EQ(FreeOnDevice(), asleep);
    blocks_left = had + 1;
  }
  memory.Wake();
  EXPECT_TRUE(Holds(small, 1));
  EXPECT_TRUE(Holds(large, 2));
}

TEST(VmmMemory, SaysHowMuchItCouldNotGive) {
  LAYERCAST_NEEDS_CUDA();
  VmmMemory memory(0);
  constexpr std::size_t absurd = std::size_t{1} << 50;
  try {
    const Buffer buffer(memory, absurd);
    FAIL() << "no device has that";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(std::string(error.what()).find(std::to_string(absurd)), std::string::npos) << error.what();
  }
}

TEST(VmmMemory, ADriverWithoutVmmIsNamed) {
  LAYERCAST_NEEDS_CUDA();
  EXPECT_THROW(VmmMemory(0, LoadVmm("/nowhere/libcuda.so.1")), Error);
}

}  // namespace
}  // namespace layercast
