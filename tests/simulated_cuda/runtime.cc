// The CUDA runtime's functions that Layercast calls: devices, streams, events, graphs and kernels. Memory is in
// runtime_memory.cc.
#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "tests/simulated_cuda/simulated_block.h"
#include "tests/simulated_cuda/simulated_call.h"
#include "tests/simulated_cuda/simulated_ipc_handle.h"
#include "tests/simulated_cuda/simulated_launch.h"
#include "tests/simulated_cuda/simulated_memory.h"

using namespace simulated_cuda;

namespace {

struct Named {
  cudaError_t error;
  const char* name;
  const char* words;
};

// The words of CUDA 13.
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

const Named& NamesOf(cudaError_t error) {
  for (const Named& named : kErrors) {
    if (named.error == error) return named;
  }
  static constexpr Named kOther{cudaErrorUnknown, "an error that the simulated CUDA does not give", "unknown error"};
  return kOther;
}

// Of an event that this process makes, or that another one has made.
std::shared_ptr<Progress> MapProgress(const SharedMemory& memory, bool mine) {
  if (mine) new (memory.base) Progress{};
  return {reinterpret_cast<Progress*>(memory.base), [memory](Progress*) { UnmapShared(memory); }};
}

constexpr std::size_t kEventBytes = 4096;

// Whether the kernel was loaded on the context's device before; it is from then on.
bool NoteLoaded(const Context& context, const void* kernel) {
  static auto& mutex = *new std::mutex;
  static auto& loaded = *new std::set<std::pair<int, const void*>>;  // guarded by mutex
  const std::lock_guard lock(mutex);
  return !loaded.emplace(context.device, kernel).second;
}

}  // namespace

namespace simulated_cuda {

cudaError_t Launch(const void* kernel, const dim3& blocks, const dim3& threads, std::size_t shared_bytes,
                   cudaStream_t stream, std::function<void()> thread) {
  return OnStream(stream, [&] {
    constexpr unsigned kMostBlocks[] = {0x7fffffff, 65535, 65535};
    constexpr unsigned kMostThreads = 1024;
    const unsigned of_block = threads.x * threads.y * threads.z;
    const bool some = blocks.x * blocks.y * blocks.z != 0 && of_block != 0;
    const bool few = blocks.x <= kMostBlocks[0] && blocks.y <= kMostBlocks[1] && blocks.z <= kMostBlocks[2];
    if (!some || !few || of_block > kMostThreads || shared_bytes != 0) return cudaErrorInvalidConfiguration;
    if (!NoteLoaded(stream->context(), kernel) && !stream->captured()) SynchronizeAll(stream->context());
    stream->Queue([=, thread = std::move(thread)] { RunBlocks(blocks, threads, thread); });
    return cudaSuccess;
  });
}

}  // namespace simulated_cuda

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return NamesOf(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return NamesOf(error).words; }
cudaError_t cudaGetLastError() { return TakeLastError(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  const Context* const current = Current();
  *device = current != nullptr ? current->device : 0;
  return cudaSuccess;
}
cudaError_t cudaInitDevice(int device, unsigned /*flags*/, unsigned /*which*/) {
  if (!IsDevice(device)) return Say(cudaErrorInvalidDevice);
  OpenPrimary(device);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!IsDevice(device)) return Say(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "simulated");
  std::memset(properties->uuid.bytes, 0x5C + device, sizeof properties->uuid.bytes);
  properties->totalGlobalMem = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!IsDevice(device) || !IsDevice(peer)) return Say(cudaErrorInvalidDevice);
  *can = device == peer ? 0 : 1;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return InContext([&](Context&) {
    *mode = ExchangeCaptureMode(*mode);
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return InContext([&](Context& context) {
    NoteLoaded(context, kernel);
    *attributes = {};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  return InContext([&](Context& context) {
    *stream = CUstream_st::Make(context);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return OnStream(stream, [&] {
    CUstream_st::Destroy(stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const cudaError_t error = OnStream(stream, [&] {
    if (stream->captured()) return cudaErrorStreamCaptureUnsupported;
    stream->Synchronize();
    return cudaSuccess;
  });
  return error != cudaSuccess ? error : Say(stream->context().failed);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return InContext([&](Context& context) {
    if ((flags & cudaEventInterprocess) == 0) {
      *event = new CUevent_st(context, std::make_shared<Progress>(), -1);
      return cudaSuccess;
    }
    if ((flags & cudaEventDisableTiming) == 0) return cudaErrorInvalidValue;
    const SharedMemory memory = MakeShared(kEventBytes);
    if (memory.base == nullptr) return cudaErrorMemoryAllocation;
    *event = new CUevent_st(context, MapProgress(memory, true), memory.file);
    return cudaSuccess;
  });
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return InContext([&](Context&) {
    delete event;
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return OnStream(stream, [&] {
    if (&event->context() != &stream->context()) return cudaErrorInvalidResourceHandle;
    if (stream->captured()) return cudaErrorStreamCaptureUnsupported;  // CUDA could, and nobody here asks for it
    event->Record(*stream);
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return OutsideCaptures([&](Context&) { return event->IsReached() ? cudaSuccess : cudaErrorNotReady; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return OutsideCaptures([&](Context& context) {
    event->Synchronize();
    return context.failed.load();
  });
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return InContext([&](Context&) {
    if (event->file() < 0) return cudaErrorInvalidResourceHandle;
    *handle = HandleOf<cudaIpcEventHandle_t>(event->file(), kEventBytes);
    return cudaSuccess;
  });
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return InContext([&](Context& context) {
    SharedMemory memory;
    const cudaError_t error = OpenHandle(handle, memory);
    if (error == cudaSuccess) *event = new CUevent_st(context, MapProgress(memory, false), -1);
    return error;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return OnStream(stream, [&] {
    if (stream->captured()) return cudaErrorInvalidValue;
    stream->BeginCapture(mode);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return OnStream(stream, [&] {
    *graph = nullptr;
    auto work = stream->EndCapture();
    if (!work) return cudaErrorStreamCaptureInvalidated;
    *graph = new CUgraph_st{std::move(*work)};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long /*flags*/) {
  return InContext([&](Context&) {
    *ready = new CUgraphExec_st{graph->work};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return OnStream(stream, [&] {
    for (const Work& work : graph->work) stream->Queue(work);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
