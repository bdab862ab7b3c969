// Whose device a thread works on, and that nobody else's is opened for it.
#include "src/cuda/call.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "tests/cuda/device.h"

namespace layercast {
namespace {

int CurrentDevice() {
  int device = -1;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice", 0);
  return device;
}

TEST(OnCudaDevice, IsTheThreadsDeviceUntilTheEndOfItsScope) {
  LAYERCAST_NEEDS_CUDA();
  const int last = ProbeCuda().devices - 1;
  std::thread([last] {
    const int before = CurrentDevice();
    {
      const OnCudaDevice scope(last);
      EXPECT_EQ(CurrentDevice(), last);
      const OnCudaDevice inner(0);
      EXPECT_EQ(CurrentDevice(), 0);
    }
    EXPECT_EQ(CurrentDevice(), before);
  }).join();
}

bool IsOpen(int device) {
  void* found = nullptr;
  CheckCuda(cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &found, 11'020, cudaEnableDefault, nullptr),
            "cudaGetDriverEntryPointByVersion", device);
  unsigned flags = 0;
  int active = 0;
  reinterpret_cast<decltype(&::cuDevicePrimaryCtxGetState)>(found)(device, &flags, &active);
  return active != 0;
}

// In a process of its own: other tests open the first device.
TEST(OnCudaDevice, WorkOnAnotherDeviceDoesNotOpenTheFirst) {
  LAYERCAST_NEEDS_CUDA();
  if (ProbeCuda().devices < 2) GTEST_SKIP() << "one GPU";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto work = [] {
    CudaStream stream(1);
    CudaMemory memory(stream);
    PinnedMemory pinned(1);
    const Buffer there(memory, 4096);
    const Buffer here(pinned, 4096);
    std::thread([&] {
      CudaEvent done(1);
      done.Record(stream);
      done.Synchronize();
      EXPECT_TRUE(done.IsDone());
      const Buffer more(memory, 4096);
      stream.Synchronize();
    }).join();
    std::exit(IsOpen(1) && !IsOpen(0) ? 0 : 1);
  };
  EXPECT_EXIT(work(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace layercast
