#include "src/transport/cuda_ipc/segments/legacy_segments.h"

#include <cuda_runtime_api.h>

#include <string>

#include "layercast/error.h"
#include "src/device/cuda/call.h"
#include "src/transport/cuda_ipc/segments/ipc_handle.h"

namespace layercast::cuda_ipc_channel {
namespace {

// A segment that is a block of cudaMalloc, because blocks of a pool have no legacy handle.
class LegacySegment final : public OwnSegment {
 public:
  LegacySegment(int device, std::size_t size) : device_(device), size_(size) {
    const OnCudaDevice scope(device);
    CheckCuda(cudaMalloc(&base_, size), "cudaMalloc of " + std::to_string(size) + " bytes", device);
  }
  ~LegacySegment() override {
    GiveBackOnCuda(device_, "cudaFree", [this] { return cudaFree(base_); });
  }
  LegacySegment(const LegacySegment&) = delete;
  LegacySegment& operator=(const LegacySegment&) = delete;
  std::byte* base() const override { return static_cast<std::byte*>(base_); }
  std::size_t size() const override { return size_; }
  SegmentKey Export() const override {
    const OnCudaDevice scope(device_);
    cudaIpcMemHandle_t handle{};
    CheckCuda(cudaIpcGetMemHandle(&handle, base_), "cudaIpcGetMemHandle", device_);
    return {{}, AsBytes(handle)};
  }
  bool kept_by_mappings() const override { return false; }

 private:
  const int device_;
  const std::size_t size_;
  void* base_ = nullptr;
};

class MappedLegacySegment final : public MappedSegment {
 public:
  MappedLegacySegment(int device, const IpcHandle& handle, std::size_t size) : device_(device), size_(size) {
    const OnCudaDevice scope(device);
    CheckCuda(cudaIpcOpenMemHandle(&base_, FromBytes<cudaIpcMemHandle_t>(handle), cudaIpcMemLazyEnablePeerAccess),
              "cudaIpcOpenMemHandle", device);
    if (HasLastByte()) return;
    Close();
    throw Error(ErrorCode::kCorrupt, "CUDA device " + std::to_string(device) + ": no legacy allocation of " +
                                         std::to_string(size) + " bytes");
  }
  ~MappedLegacySegment() override { Close(); }
  MappedLegacySegment(const MappedLegacySegment&) = delete;
  MappedLegacySegment& operator=(const MappedLegacySegment&) = delete;
  const std::byte* base() const override { return static_cast<const std::byte*>(base_); }
  std::size_t size() const override { return size_; }

 private:
  // Checks the size, which is only what a peer says: copying from past the end would end all of this process's work on
  // the device.
  bool HasLastByte() const {
    cudaPointerAttributes last{};
    const cudaError_t found = size_ == 0 ? cudaErrorInvalidValue : cudaPointerGetAttributes(&last, base() + size_ - 1);
    static_cast<void>(cudaGetLastError());  // cleared: it concerns nobody else
    return found == cudaSuccess && last.type == cudaMemoryTypeDevice;
  }
  void Close() noexcept {
    GiveBackOnCuda(device_, "cudaIpcCloseMemHandle", [this] { return cudaIpcCloseMemHandle(base_); });
  }

  const int device_;
  const std::size_t size_;
  void* base_ = nullptr;
};

}  // namespace

std::unique_ptr<OwnSegment> MakeLegacySegment(int device, std::size_t bytes) {
  return std::make_unique<LegacySegment>(device, bytes);
}

std::unique_ptr<const MappedSegment> MapLegacySegment(int device, const IpcHandle& handle, std::size_t bytes) {
  return std::make_unique<MappedLegacySegment>(device, handle, bytes);
}

}  // namespace layercast::cuda_ipc_channel
