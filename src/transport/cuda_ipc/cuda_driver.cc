#include "src/transport/cuda_ipc/cuda_driver.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/rounding.h"
#include "src/cuda/call.h"
#include "src/transport/cuda_ipc/vmm.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr CUmemAllocationHandleType kAsDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

IpcHandle AsBytes(const auto& handle) {
  IpcHandle bytes;
  static_assert(sizeof(handle) == sizeof(bytes));
  std::memcpy(bytes.data(), &handle, bytes.size());
  return bytes;
}

template <typename Handle>
Handle FromBytes(const IpcHandle& bytes) {
  Handle handle;
  static_assert(sizeof(handle) == sizeof(bytes));
  std::memcpy(&handle, bytes.data(), bytes.size());
  return handle;
}

// The functions with the device that they are called for.
class Vmm {
 public:
  Vmm(const VmmFunctions& functions, int device) : functions_(functions), device_(device) {
    ExpectAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management");
    ExpectAttribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory by file descriptor");
  }

  void Expect(CUresult result, const char* call, ErrorCode code = ErrorCode::kUnavailable) const {
    if (result == CUDA_SUCCESS) return;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) code = ErrorCode::kResourceExhausted;
    if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) code = ErrorCode::kUnsupported;
    const char* words = nullptr;
    static_cast<void>(functions_.get_error_string(result, &words));
    throw Error(code, "CUDA device " + std::to_string(device_) + ": " + call + ": " +
                          (words != nullptr ? words : "error " + std::to_string(result)));
  }
  void Log(CUresult result, const char* call) const noexcept {
    if (result != CUDA_SUCCESS) log::error("CUDA device {}: {}: error {}", device_, call, static_cast<int>(result));
  }
  const VmmFunctions& functions() const { return functions_; }
  CUmemAllocationProp properties() const {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = kAsDescriptor;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    return properties;
  }
  std::size_t granularity() const {
    const CUmemAllocationProp wanted = properties();
    std::size_t bytes = 0;
    Expect(functions_.granularity(&bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity",
           ErrorCode::kUnsupported);
    return bytes;
  }
  int device() const { return device_; }

 private:
  void ExpectAttribute(CUdevice_attribute attribute, const char* what) const {
    int has = 0;
    Expect(functions_.device_get_attribute(&has, attribute, device_), "cuDeviceGetAttribute");
    if (has == 0) throw Error(ErrorCode::kUnsupported, "the device has no " + std::string(what));
  }

  const VmmFunctions functions_;
  const int device_;
};

// An allocation in the address space of this process.
class VmmMapping {
 public:
  // Takes over `allocation`.
  VmmMapping(const Vmm& vmm, CUmemGenericAllocationHandle allocation, std::size_t size, bool writes)
      : vmm_(vmm), allocation_(allocation), size_(size) {
    try {
      vmm_.Expect(vmm_.functions().reserve(&base_, size_, 0, 0, 0), "cuMemAddressReserve");
      vmm_.Expect(vmm_.functions().map(base_, size_, 0, allocation_, 0), "cuMemMap", ErrorCode::kCorrupt);
      mapped_ = true;
      // Drivers that know no read-only access refuse it.
      if (writes || SetAccess(CU_MEM_ACCESS_FLAGS_PROT_READ) != CUDA_SUCCESS) {
        vmm_.Expect(SetAccess(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "cuMemSetAccess", ErrorCode::kUnsupported);
      }
    } catch (...) {
      End();
      throw;
    }
  }
  ~VmmMapping() { End(); }
  VmmMapping(const VmmMapping&) = delete;
  VmmMapping& operator=(const VmmMapping&) = delete;

  std::byte* base() const { return reinterpret_cast<std::byte*>(base_); }
  std::size_t size() const { return size_; }
  UniqueFd Export() const {
    int fd = -1;
    vmm_.Expect(vmm_.functions().export_handle(&fd, allocation_, kAsDescriptor, 0), "cuMemExportToShareableHandle",
                ErrorCode::kUnsupported);
    return UniqueFd(fd);
  }

 private:
  CUresult SetAccess(CUmemAccess_flags flags) const {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, vmm_.device()}, flags};
    return vmm_.functions().set_access(base_, size_, &access, 1);
  }
  void End() noexcept {
    if (mapped_) vmm_.Log(vmm_.functions().unmap(base_, size_), "cuMemUnmap");
    if (base_ != 0) vmm_.Log(vmm_.functions().free_address(base_, size_), "cuMemAddressFree");
    vmm_.Log(vmm_.functions().release(allocation_), "cuMemRelease");
  }

  const Vmm& vmm_;
  const CUmemGenericAllocationHandle allocation_;
  const std::size_t size_;
  CUdeviceptr base_ = 0;
  bool mapped_ = false;
};

class VmmSegment final : public OwnSegment {
 public:
  VmmSegment(const Vmm& vmm, CUmemGenericAllocationHandle allocation, std::size_t size)
      : mapping_(vmm, allocation, size, true) {}
  std::byte* base() const override { return mapping_.base(); }
  std::size_t size() const override { return mapping_.size(); }
  SegmentKey Export() const override { return {mapping_.Export(), {}}; }
  bool kept_by_mappings() const override { return true; }

 private:
  VmmMapping mapping_;
};

class MappedVmmSegment final : public MappedSegment {
 public:
  MappedVmmSegment(const Vmm& vmm, CUmemGenericAllocationHandle allocation, std::size_t size)
      : mapping_(vmm, allocation, size, false) {}
  const std::byte* base() const override { return mapping_.base(); }
  std::size_t size() const override { return mapping_.size(); }

 private:
  VmmMapping mapping_;
};

// Of cudaMalloc: blocks of a pool have no legacy handle.
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
  // The size is what a peer says: to copy from past the end would end all work of the process on the device.
  bool HasLastByte() const {
    cudaPointerAttributes last{};
    const cudaError_t found = size_ == 0 ? cudaErrorInvalidValue : cudaPointerGetAttributes(&last, base() + size_ - 1);
    static_cast<void>(cudaGetLastError());  // it is nobody else's
    return found == cudaSuccess && last.type == cudaMemoryTypeDevice;
  }
  void Close() noexcept {
    GiveBackOnCuda(device_, "cudaIpcCloseMemHandle", [this] { return cudaIpcCloseMemHandle(base_); });
  }

  const int device_;
  const std::size_t size_;
  void* base_ = nullptr;
};

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
  void Record(StagingStream& stream) override {
    const OnCudaDevice scope(device_);
    CheckCuda(cudaEventRecord(event_, stream.handle()), "cudaEventRecord", device_);
  }
  void Await(StagingStream& stream) override {
    const OnCudaDevice scope(device_);
    CheckCuda(cudaStreamWaitEvent(stream.handle(), event_, 0), "cudaStreamWaitEvent", device_);
  }

 private:
  const int device_;
  cudaEvent_t event_ = nullptr;
};

class CudaDriver final : public IpcDriver {
 public:
  explicit CudaDriver(int device) : device_(device) {}

  bool opens_its_own() const override { return false; }

  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) override {
    if (const Vmm* const vmm = OpenVmm()) {
      try {
        return MakeVmmSegment(*vmm, bytes);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kUnsupported) throw;
        GiveUpVmm(error);
      }
    }
    auto segment = std::make_unique<LegacySegment>(device_, bytes);
    try {
      static_cast<void>(segment->Export());
    } catch (const Error& error) {
      throw Error(ErrorCode::kUnsupported,
                  std::string("device memory cannot be shared here: ") + error.what() + "; nor by VMM: " + WhyNoVmm());
    }
    return segment;
  }

  std::unique_ptr<const MappedSegment> Map(SegmentKey key, std::size_t bytes) override {
    if (!key.descriptor) return std::make_unique<MappedLegacySegment>(device_, key.handle, bytes);
    const Vmm* const vmm = OpenVmm();
    if (vmm == nullptr) {
      throw Error(ErrorCode::kUnsupported,
                  "the publisher's memory is VMM's, which is not to be had here: " + WhyNoVmm());
    }
    const OnCudaDevice scope(device_);
    CUmemGenericAllocationHandle allocation = 0;
    void* const descriptor = reinterpret_cast<void*>(static_cast<std::uintptr_t>(key.descriptor.get()));
    vmm->Expect(vmm->functions().import_handle(&allocation, descriptor, kAsDescriptor),
                "cuMemImportFromShareableHandle", ErrorCode::kCorrupt);
    return std::make_unique<MappedVmmSegment>(*vmm, allocation, bytes);
  }

  std::unique_ptr<IpcEvent> MakeEvent() override { return std::make_unique<CudaIpcEvent>(device_); }
  std::unique_ptr<IpcEvent> OpenEvent(const IpcHandle& handle) override {
    return std::make_unique<CudaIpcEvent>(device_, handle);
  }

  void CopyRows(StagingStream& stream, std::byte* to, const RegionView& from) override {
    const OnCudaDevice scope(device_);
    CheckCuda(cudaMemcpy2DAsync(to, from.row_bytes, from.base, from.stride, from.row_bytes, from.rows,
                                cudaMemcpyDefault, stream.handle()),
              "cudaMemcpy2DAsync", device_);
  }

 private:
  // Null: there is none.
  const Vmm* OpenVmm() {
    const std::lock_guard lock(mutex_);
    if (!vmm_ && why_no_vmm_.empty()) {
      try {
        const OnCudaDevice scope(device_);  // makes the runtime initialize the driver
        vmm_.emplace(LoadVmm("libcuda.so.1"), device_);
      } catch (const Error& error) {
        why_no_vmm_ = error.what();
      }
    }
    return why_no_vmm_.empty() ? &*vmm_ : nullptr;
  }
  void GiveUpVmm(const Error& error) {
    const std::lock_guard lock(mutex_);
    why_no_vmm_ = error.what();
    log::info("cuda_ipc: legacy IPC handles instead of VMM: {}", error.what());
  }
  std::string WhyNoVmm() const {
    const std::lock_guard lock(mutex_);
    return why_no_vmm_;
  }
  std::unique_ptr<OwnSegment> MakeVmmSegment(const Vmm& vmm, std::size_t bytes) const {
    const OnCudaDevice scope(device_);
    const std::size_t size = RoundUp(bytes, vmm.granularity());
    const CUmemAllocationProp properties = vmm.properties();
    CUmemGenericAllocationHandle allocation = 0;
    // But for memory that ran out, whatever it says (of the system, of permissions) legacy handles may still do.
    vmm.Expect(vmm.functions().create(&allocation, size, &properties, 0), "cuMemCreate", ErrorCode::kUnsupported);
    auto segment = std::make_unique<VmmSegment>(vmm, allocation, size);
    static_cast<void>(segment->Export());  // a container may forbid it
    return segment;
  }

  const int device_;
  mutable std::mutex mutex_;
  std::optional<Vmm> vmm_;  // guarded by mutex_; there for good once it is
  std::string why_no_vmm_;  // guarded by mutex_
};

}  // namespace

std::shared_ptr<IpcDriver> MakeCudaDriver(int device) { return std::make_shared<CudaDriver>(device); }

}  // namespace layercast::cuda_ipc_channel
