// Devices, their contexts, and what each host thread has to do with them: the context it is in, its last error, and
// whether it may disturb a capture.
#pragma once

#include <driver_types.h>

#include <atomic>

// What CUcontext points to. Lives as long as the process, but for those that a program makes and destroys.
struct CUctx_st {
  explicit CUctx_st(int number) : device(number) {}

  const int device;
  std::atomic<cudaError_t> failed = cudaSuccess;  // what all calls answer after a kernel has failed
};

namespace simulated_cuda {

using Context = ::CUctx_st;

inline constexpr int kDevices = 2;

inline bool IsDevice(int device) { return device >= 0 && device < kDevices; }

// The device's primary context, which is open from then on.
Context& OpenPrimary(int device);
bool IsOpen(int device);

// Of the calling thread.
Context* Current();
void Push(Context* context);
Context* Pop();
// The context that the thread is in. If it is in none, it is then in the primary context of the first device.
Context& Entered();

// Notes an error down as the thread's last one; success does not count.
cudaError_t Say(cudaError_t error);
cudaError_t TakeLastError();

// A thread's wish for whose captures it may disturb. Returns the former one.
cudaStreamCaptureMode ExchangeCaptureMode(cudaStreamCaptureMode mode);

// Captures that have begun and not ended. A call that disturbs one breaks it off.
void CaptureBegins(const void* stream, cudaStreamCaptureMode mode);
bool CaptureEnds(const void* stream);  // false if it was broken off
// For calls that no capture can hold. False if the thread's mode lets it disturb one: that one is broken off.
bool DisturbsNoCapture();

}  // namespace simulated_cuda
