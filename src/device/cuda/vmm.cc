#include "src/device/cuda/vmm.h"

#include <dlfcn.h>

#include "src/base/log.h"

namespace layercast {

VmmFunctions LoadVmm(const std::string& path) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the CUDA driver cannot be loaded: " + std::string(::dlerror()));
  }
  const auto find = [&]<typename Function>(Function*& function, const char* name) {
    void* const found = ::dlsym(library, name);
    if (found == nullptr) throw Error(ErrorCode::kUnsupported, "the CUDA driver '" + path + "' has no " + name);
    function = reinterpret_cast<Function*>(found);
  };
  VmmFunctions functions;
  find(functions.get_error_string, "cuGetErrorString");
  find(functions.device_get_attribute, "cuDeviceGetAttribute");
  find(functions.granularity, "cuMemGetAllocationGranularity");
  find(functions.create, "cuMemCreate");
  find(functions.release, "cuMemRelease");
  find(functions.export_handle, "cuMemExportToShareableHandle");
  find(functions.import_handle, "cuMemImportFromShareableHandle");
  find(functions.reserve, "cuMemAddressReserve");
  find(functions.free_address, "cuMemAddressFree");
  find(functions.map, "cuMemMap");
  find(functions.unmap, "cuMemUnmap");
  find(functions.set_access, "cuMemSetAccess");
  return functions;
}

Vmm::Vmm(const VmmFunctions& functions, int device) : functions_(functions), device_(device) {
  ExpectAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management");
}

void Vmm::Expect(CUresult result, const char* call, ErrorCode code) const {
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = ErrorCode::kResourceExhausted;
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) code = ErrorCode::kUnsupported;
  const char* words = nullptr;
  static_cast<void>(functions_.get_error_string(result, &words));
  throw Error(code, "CUDA device " + std::to_string(device_) + ": " + call + ": " +
                        (words != nullptr ? words : "error " + std::to_string(result)));
}

void Vmm::Log(CUresult result, const char* call) const noexcept {
  if (result != CUDA_SUCCESS) log::error("CUDA device {}: {}: error {}", device_, call, static_cast<int>(result));
}

void Vmm::ExpectAttribute(CUdevice_attribute attribute, const char* what) const {
  int has = 0;
  Expect(functions_.device_get_attribute(&has, attribute, device_), "cuDeviceGetAttribute");
  if (has == 0) throw Error(ErrorCode::kUnsupported, "the device has no " + std::string(what));
}

CUmemAllocationProp Vmm::Properties(CUmemAllocationHandleType handles) const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = handles;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  return properties;
}

std::size_t Vmm::Granularity(const CUmemAllocationProp& properties) const {
  std::size_t bytes = 0;
  Expect(functions_.granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity",
         ErrorCode::kUnsupported);
  return bytes;
}

CUresult Vmm::SetAccess(CUdeviceptr base, std::size_t size, CUmemAccess_flags flags) const {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_}, flags};
  return functions_.set_access(base, size, &access, 1);
}

}  // namespace layercast
