// How a call of the CUDA runtime is made: on the right device, and with an Error where it fails. For the sources behind
// this folder's headers and for those of CUDA kernels; the one header here that needs CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace layercast {

// Throws an Error naming call and device unless `error` is cudaSuccess: kResourceExhausted where memory ran out,
// kUnsupported where there is no such device or no driver for it, else kUnavailable.
void CheckCuda(cudaError_t error, const std::string& call, int device);

// The calling thread's device until the end of the scope: its primary context is pushed, and popped again, unless the
// thread is in that one. Every call
// that needs a context is made in one, those that are given a stream too, since the runtime opens the thread's own
// device for them; and setting that one again at the end would open it as well. So a process that works on one GPU has
// a context there, some hundreds of megabytes, and none on the first. The thread's capture mode is relaxed meanwhile: a
// host program may capture a graph on another thread, which cudaEventQuery or cudaHostAlloc would end otherwise,
// whatever stream they are called for.
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
    bool pushed_ = false;  // else the thread was in it
  };

  const Context context_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // once it is exchanged, the thread's own
};

// Loads a kernel onto the calling thread's device. A kernel that was not loaded before is when it is first started, and
// that may wait for all that runs there: for other kernels that wait for their peers, too.
void LoadKernel(const void* kernel);

// Whether the device has got to the event; waits for nothing. Throws as CheckCuda does.
bool IsReachedOnCuda(int device, cudaEvent_t event);

// For destructors: makes the call on the device, and logs where it fails.
void GiveBackOnCuda(int device, const char* call, const std::function<cudaError_t()>& give_back) noexcept;

}  // namespace layercast
