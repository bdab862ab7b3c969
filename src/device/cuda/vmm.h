// Virtual memory management (VMM) of the CUDA driver: addresses that are reserved apart from the memory behind them.
// The CUDA runtime lacks it, so its functions are looked up at run time, and a program starts without a driver. Used by
// memory that can sleep, and by segments that other processes map.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

#include "layercast/error.h"

namespace layercast {

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

// Loads the functions from the driver at `path`. Throws kUnsupported if there is no such library, or it lacks one.
VmmFunctions LoadVmm(const std::string& path = "libcuda.so.1");

// VMM on one device. Whoever calls its functions must have made that device the thread's current one (OnCudaDevice).
// Immutable; thread-safe.
class Vmm {
 public:
  // Throws kUnsupported if the device has no VMM.
  Vmm(const VmmFunctions& functions, int device);

  // Throws unless the call succeeded: kResourceExhausted if memory ran out, kUnsupported if something is not supported
  // or not permitted, and otherwise `code`.
  void Expect(CUresult result, const char* call, ErrorCode code = ErrorCode::kUnavailable) const;
  void Log(CUresult result, const char* call) const noexcept;
  // Throws kUnsupported if the device lacks it, which the error calls `what`.
  void ExpectAttribute(CUdevice_attribute attribute, const char* what) const;

  // Of memory on this device that can be handed to other processes by such handles (0: by none).
  CUmemAllocationProp Properties(CUmemAllocationHandleType handles) const;
  // What sizes of such memory are multiples of. Throws kUnsupported if there can be none.
  std::size_t Granularity(const CUmemAllocationProp& properties) const;
  // Lets this device read what is mapped there, and write it or not.
  CUresult SetAccess(CUdeviceptr base, std::size_t size, CUmemAccess_flags flags) const;

  const VmmFunctions& functions() const { return functions_; }
  int device() const { return device_; }

 private:
  const VmmFunctions functions_;
  const int device_;
};

}  // namespace layercast
