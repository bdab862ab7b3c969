// How a call of the CUDA runtime is made: on the right device, and with an Error if it fails. Used by the sources
// behind this folder's headers and by those of CUDA kernels. This is the only header here that includes CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace layercast {

// Throws an Error, naming call and device, unless `error` is cudaSuccess: kResourceExhausted if memory ran out,
// kUnsupported if there is no such device or no driver for it, and otherwise kUnavailable.
void CheckCuda(cudaError_t error, const std::string& call, int device);

// Makes `device` the calling thread's device until the end of the scope: its primary context is pushed, and popped at
// the end, unless the thread is in it already.
//
// Every call that needs a context is made in one, even a call that is given a stream, because the runtime would
// otherwise open the thread's own device for it. Setting that device again at the end would open it as well. So a
// process that works on one GPU has a context, some hundreds of megabytes, on that GPU and none on the first.
//
// The thread's capture mode is relaxed meanwhile. A host program may be capturing a graph on another thread, and
// cudaEventQuery or cudaHostAlloc would otherwise end that capture, whatever stream they are called for.
class OnCudaDevice {
 public:
  explicit OnCudaDevice(int device);
  OnCudaDevice(const OnCudaDevice&) = delete;
  OnCudaDevice& operator=(const OnCudaDevice&) = delete;
  ~OnCudaDevice();

 private:
  class Context {
   public:
    explicit Context(int device);
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    ~Context();

   private:
    bool pushed_ = false;  // if not, the thread was in the context already
  };

  const Context context_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // after the exchange, the thread's own
};

// Loads a kernel onto the calling thread's device. Otherwise it is loaded when it is first started, which may wait for
// everything that runs there, including other kernels that wait for their peers.
void LoadKernel(const void* kernel);

// Whether the device has reached the event. Does not wait. Throws what CheckCuda throws.
bool IsReachedOnCuda(int device, cudaEvent_t event);

// For destructors: makes the call on the device, and logs an error if it fails.
void GiveBackOnCuda(int device, const char* call, const std::function<cudaError_t()>& give_back) noexcept;

}  // namespace layercast
