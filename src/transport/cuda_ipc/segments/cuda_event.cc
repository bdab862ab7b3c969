#include "src/transport/cuda_ipc/segments/cuda_event.h"

#include <cuda_runtime_api.h>

#include "src/device/cuda/call.h"
#include "src/transport/cuda_ipc/segments/ipc_handle.h"

namespace layercast::cuda_ipc_channel {
namespace {

class CudaIpcEvent final : public IpcEvent {
 public:
  explicit CudaIpcEvent(int device) : device_(device) {
    const OnCudaDevice scope(device);
    CheckCuda(cudaEventCreateWithFlags(&event_, cudaEventInterprocess | cudaEventDisableTiming),
              "cudaEventCreateWithFlags", device);
  }
  CudaIpcEvent(int device, const IpcHandle& handle) : device_(device) {
    const OnCudaDevice scope(device);
    CheckCuda(cudaIpcOpenEventHandle(&event_, FromBytes<cudaIpcEventHandle_t>(handle)), "cudaIpcOpenEventHandle",
              device);
  }
  ~CudaIpcEvent() override {
    GiveBackOnCuda(device_, "cudaEventDestroy", [this] { return cudaEventDestroy(event_); });
  }
  CudaIpcEvent(const CudaIpcEvent&) = delete;
  CudaIpcEvent& operator=(const CudaIpcEvent&) = delete;

  IpcHandle handle() const override {
    const OnCudaDevice scope(device_);
    cudaIpcEventHandle_t handle{};
    CheckCuda(cudaIpcGetEventHandle(&handle, event_), "cudaIpcGetEventHandle", device_);
    return AsBytes(handle);
  }
  void Record(CopyStream& stream) override {
    const OnCudaDevice scope(device_);
    CheckCuda(cudaEventRecord(event_, stream.handle()), "cudaEventRecord", device_);
  }
  bool Reached() override { return IsReachedOnCuda(device_, event_); }

 private:
  const int device_;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<IpcEvent> MakeCudaEvent(int device) { return std::make_unique<CudaIpcEvent>(device); }

std::unique_ptr<IpcEvent> OpenCudaEvent(int device, const IpcHandle& handle) {
  return std::make_unique<CudaIpcEvent>(device, handle);
}

}  // namespace layercast::cuda_ipc_channel
