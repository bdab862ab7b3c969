// The functions of the CUDA driver that the runtime has no counterpart of: VMM. They are found at run time, so that a
// program starts without a driver.
#pragma once

#include <cuda.h>

#include <string>

namespace layercast::cuda_ipc_channel {

// Value; the driver stays loaded until the process ends.
struct VmmFunctions {
  decltype(&::cuGetErrorString) get_error_string = nullptr;
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&::cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) free_address = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
};

// The functions of the driver at `path` ("libcuda.so.1"). Throws kUnsupported, naming it: there is none, or it lacks a
// function.
VmmFunctions LoadVmm(const std::string& path);

}  // namespace layercast::cuda_ipc_channel
