#include "src/transport/cuda_ipc/segments/vmm_segments.h"

#include <cstdint>
#include <utility>

#include "src/base/rounding.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr CUmemAllocationHandleType kAsDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// An allocation that is mapped into the address space of this process. Resource.
class VmmMapping {
 public:
  // Takes over `allocation`.
  VmmMapping(const Vmm& vmm, CUmemGenericAllocationHandle allocation, std::size_t size, bool writes)
      : vmm_(vmm), allocation_(allocation), size_(size) {
    // For a segment of one's own, legacy handles may still do (MakeSegment). For a peer's, nothing else will.
    const ErrorCode refused = writes ? ErrorCode::kUnsupported : ErrorCode::kUnavailable;
    try {
      vmm_.Expect(vmm_.functions().reserve(&base_, size_, 0, 0, 0), "cuMemAddressReserve", refused);
      const CUresult result = vmm_.functions().map(base_, size_, 0, allocation_, 0);
      // The size of an imported allocation is only what a peer says.
      const bool of_another_size = result == CUDA_ERROR_INVALID_VALUE && !writes;
      vmm_.Expect(result, "cuMemMap", of_another_size ? ErrorCode::kCorrupt : refused);
      mapped_ = true;
      // Drivers that do not know read-only access refuse it; then the mapping is writable.
      if (writes || vmm_.SetAccess(base_, size_, CU_MEM_ACCESS_FLAGS_PROT_READ) != CUDA_SUCCESS) {
        vmm_.Expect(vmm_.SetAccess(base_, size_, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "cuMemSetAccess",
                    ErrorCode::kUnsupported);
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

}  // namespace

VmmSegments::VmmSegments(const VmmFunctions& functions, int device) : vmm_(functions, device) {
  vmm_.ExpectAttribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory by file descriptor");
}

std::unique_ptr<OwnSegment> VmmSegments::MakeSegment(std::size_t bytes) const {
  const CUmemAllocationProp properties = vmm_.Properties(kAsDescriptor);
  const std::size_t size = RoundUp(bytes, vmm_.Granularity(properties));
  CUmemGenericAllocationHandle allocation = 0;
  vmm_.Expect(vmm_.functions().create(&allocation, size, &properties, 0), "cuMemCreate", ErrorCode::kUnsupported);
  auto segment = std::make_unique<VmmSegment>(vmm_, allocation, size);
  static_cast<void>(segment->Export());  // a container may forbid it
  return segment;
}

std::unique_ptr<const MappedSegment> VmmSegments::Map(UniqueFd descriptor, std::size_t bytes) const {
  CUmemGenericAllocationHandle allocation = 0;
  void* const as_pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor.get()));
  // kUnsupported: the memory may be of a GPU that this process does not see, say. Then the publisher has done nothing
  // wrong, and another channel will do.
  vmm_.Expect(vmm_.functions().import_handle(&allocation, as_pointer, kAsDescriptor), "cuMemImportFromShareableHandle",
              ErrorCode::kUnsupported);
  return std::make_unique<MappedVmmSegment>(vmm_, allocation, bytes);
}

}  // namespace layercast::cuda_ipc_channel
