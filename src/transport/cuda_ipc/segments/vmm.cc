#include "src/transport/cuda_ipc/segments/vmm.h"

#include <dlfcn.h>

#include "layercast/error.h"

namespace layercast::cuda_ipc_channel {

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

}  // namespace layercast::cuda_ipc_channel
