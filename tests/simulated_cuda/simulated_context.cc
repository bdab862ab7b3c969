#include "tests/simulated_cuda/simulated_context.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace simulated_cuda {
namespace {

struct Primary {
  explicit Primary(int device) : context(device) {}
  Context context;
  std::atomic<bool> open = false;
};

Primary& PrimaryOf(int device) {
  static auto& primaries = *new std::array<Primary, kDevices>{Primary(0), Primary(1)};
  return primaries[static_cast<std::size_t>(device)];
}

// Usable until the process ends: what is destroyed last may still push a context.
thread_local std::array<Context*, 64> contexts;
thread_local std::size_t depth = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

struct Capture {
  const void* stream;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool broken = false;
};

struct Captures {
  std::mutex mutex;
  std::vector<Capture> all;  // guarded by mutex
};

Captures& AllCaptures() {
  static auto& captures = *new Captures;
  return captures;
}

// By the rules of cudaThreadExchangeStreamCaptureMode.
bool IsDisturbed(const Capture& capture) {
  if (capture_mode == cudaStreamCaptureModeRelaxed || capture.mode == cudaStreamCaptureModeRelaxed) return false;
  const bool everybodys = capture_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
  return everybodys || capture.thread == std::this_thread::get_id();
}

}  // namespace

Context& OpenPrimary(int device) {
  PrimaryOf(device).open = true;
  return PrimaryOf(device).context;
}
bool IsOpen(int device) { return PrimaryOf(device).open; }

Context* Current() { return depth == 0 ? nullptr : contexts[depth - 1]; }
void Push(Context* context) { contexts.at(depth++) = context; }
Context* Pop() { return depth == 0 ? nullptr : contexts[--depth]; }
Context& Entered() {
  if (depth == 0) Push(&OpenPrimary(0));
  return *Current();
}

cudaError_t Say(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t TakeLastError() { return std::exchange(last_error, cudaSuccess); }

cudaStreamCaptureMode ExchangeCaptureMode(cudaStreamCaptureMode mode) { return std::exchange(capture_mode, mode); }

void CaptureBegins(const void* stream, cudaStreamCaptureMode mode) {
  Captures& captures = AllCaptures();
  const std::lock_guard lock(captures.mutex);
  captures.all.push_back({stream, mode, std::this_thread::get_id()});
}
bool CaptureEnds(const void* stream) {
  Captures& captures = AllCaptures();
  const std::lock_guard lock(captures.mutex);
  const auto found = std::ranges::find(captures.all, stream, &Capture::stream);
  if (found == captures.all.end()) return false;
  const bool whole = !found->broken;
  captures.all.erase(found);
  return whole;
}
bool DisturbsNoCapture() {
  Captures& captures = AllCaptures();
  const std::lock_guard lock(captures.mutex);
  bool none = true;
  for (Capture& capture : captures.all) {
    if (!IsDisturbed(capture)) continue;
    capture.broken = true;
    none = false;
  }
  return none;
}

}  // namespace simulated_cuda
