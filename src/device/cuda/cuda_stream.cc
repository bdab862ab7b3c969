#include "src/device/cuda/cuda_stream.h"

#include <chrono>
#include <utility>

#include "src/device/cuda/call.h"

namespace layercast {
namespace {

// How long a waiting thread polls: about as long as waking it takes. Copies of small tensors are done sooner.
constexpr std::chrono::microseconds kAwake{30};

}  // namespace

CudaEvent::CudaEvent(int device) : device_(device) {
  const OnCudaDevice scope(device);
  // Without the second flag, the waiting thread would spin.
  CheckCuda(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming | cudaEventBlockingSync),
            "cudaEventCreateWithFlags", device);
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (handle_ != nullptr) GiveBackOnCuda(device_, "cudaEventDestroy", [this] { return cudaEventDestroy(handle_); });
}

void CudaEvent::Record(const CudaStream& stream) {
  const OnCudaDevice scope(device_);
  CheckCuda(cudaEventRecord(handle_, stream.handle()), "cudaEventRecord", device_);
}

void CudaEvent::Synchronize() const {
  const OnCudaDevice scope(device_);
  const auto sleeps = std::chrono::steady_clock::now() + kAwake;
  do {
    if (IsReachedOnCuda(device_, handle_)) return;
  } while (std::chrono::steady_clock::now() < sleeps);
  CheckCuda(cudaEventSynchronize(handle_), "cudaEventSynchronize", device_);
}

bool CudaEvent::IsDone() const { return IsReachedOnCuda(device_, handle_); }

CudaStream::CudaStream(int device) : device_(device) {
  const OnCudaDevice scope(device);
  CheckCuda(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags", device);
}

CudaStream::CudaStream(CudaStream&& other) noexcept
    : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  return *this;
}

CudaStream::~CudaStream() {
  if (handle_ != nullptr) GiveBackOnCuda(device_, "cudaStreamDestroy", [this] { return cudaStreamDestroy(handle_); });
}

void CudaStream::Synchronize() const {
  const OnCudaDevice scope(device_);
  CheckCuda(cudaStreamSynchronize(handle_), "cudaStreamSynchronize", device_);
}

}  // namespace layercast
