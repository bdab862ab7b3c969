// Whose device a thread works on, and that nobody else's is opened for it.
#include "src/device/cuda/call.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"
#include "tests/src/device/cuda/a_device.h"

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

template <typename Function>
Function* OfDriver(const char* name) {
  void* found = nullptr;
  CheckCuda(cudaGetDriverEntryPointByVersion(name, &found, 11'020, cudaEnableDefault, nullptr),
            "cudaGetDriverEntryPointByVersion", 0);
  return reinterpret_cast<Function*>(found);
}

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  OfDriver<decltype(::cuCtxGetCurrent)>("cuCtxGetCurrent")(&context);
  return context;
}

bool IsInAContext() { return CurrentContext() != nullptr; }

// The driver's functions for virtual memory are called in none otherwise.
TEST(OnCudaDevice, OpensAContextForAThreadThatIsInNone) {
  LAYERCAST_NEEDS_CUDA();
  std::thread([] {
    EXPECT_EQ(CurrentDevice(), 0);
    EXPECT_FALSE(IsInAContext());
    {
      const OnCudaDevice scope(0);
      EXPECT_TRUE(IsInAContext());
    }
    EXPECT_FALSE(IsInAContext());
  }).join();
}

// As a program has that makes contexts of its own, green ones among them.
TEST(OnCudaDevice, IsThePrimaryContextForAThreadThatIsInAnotherOneOfTheDevice) {
  LAYERCAST_NEEDS_CUDA();
  std::thread([] {
    CUcontext primary = nullptr;
    {
      const OnCudaDevice scope(0);
      primary = CurrentContext();
    }
    CUcontext own = nullptr;  // as of the version that OfDriver asks for
    ASSERT_EQ(OfDriver<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate")(&own, 0, 0), CUDA_SUCCESS);
    {
      const OnCudaDevice scope(0);
      EXPECT_EQ(CurrentContext(), primary);
      const OnCudaDevice inner(0);
      EXPECT_EQ(CurrentContext(), primary);
    }
    EXPECT_EQ(CurrentContext(), own);
    CudaEvent done(0);
    done.Record(CudaStream(0));  // an event and a stream of one context
    done.Synchronize();
    OfDriver<decltype(::cuCtxDestroy)>("cuCtxDestroy")(own);
  }).join();
}

TEST(OnCudaDevice, LetsAThreadWorkWhileAnotherOneCapturesAGraph) {
  LAYERCAST_NEEDS_CUDA();
  const CudaStream captured(0);
  const CudaStream ours(0);
  ASSERT_EQ(cudaStreamBeginCapture(captured.handle(), cudaStreamCaptureModeGlobal), cudaSuccess);
  std::thread([&] {
    CudaEvent done(0);
    done.Record(ours);
    done.Synchronize();
    EXPECT_TRUE(done.IsDone());
    PinnedMemory pinned(0);
    const Buffer here(pinned, 4096);
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.handle(), &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
}

TEST(OnCudaDevice, GivesTheThreadItsCaptureModeBack) {
  LAYERCAST_NEEDS_CUDA();
  std::thread([last = ProbeCuda().devices - 1] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    for (const int device : {0, last}) {
      const OnCudaDevice scope(device);
    }
    ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
    EXPECT_EQ(mode, cudaStreamCaptureModeThreadLocal);
  }).join();
}

bool IsOpen(int device) {
  unsigned flags = 0;
  int active = 0;
  OfDriver<decltype(::cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState")(device, &flags, &active);
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
