// The functions of the CUDA driver that the CUDA runtime lacks: virtual memory management (VMM). They are looked up at
// run time, so that a program starts without a driver. Used by vmm_segments.h.
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

// Loads the functions from the driver at `path` ("libcuda.so.1"). Throws kUnsupported if there is no such library, or
// it lacks a function.
VmmFunctions LoadVmm(const std::string& path);

}  // namespace layercast::cuda_ipc_channel
