#include "src/device/cuda/call.h"

#include <cuda.h>

#include <type_traits>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/device/cuda/per_device.h"

namespace layercast {
namespace {

ErrorCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation: return ErrorCode::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotSupported: return ErrorCode::kUnsupported;
    default: return ErrorCode::kUnavailable;
  }
}

// Functions of the driver that have no counterpart in the runtime. They are found at run time, so that a program starts
// without a driver.
struct ContextFunctions {
  decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&::cuCtxGetCurrent) current = nullptr;
  decltype(&::cuCtxPushCurrent) push = nullptr;
  decltype(&::cuCtxPopCurrent) pop = nullptr;
};

ContextFunctions FindContextFunctions() {
  constexpr unsigned kVersion = 11'020;  // the version whose meaning is used; no older driver will do
  const auto find = [](auto& function, const char* name) {
    void* found = nullptr;
    auto status = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
    if (error != cudaSuccess || status != cudaDriverEntryPointSuccess) {
      static_cast<void>(cudaGetLastError());
      throw Error(ErrorCode::kUnsupported, std::string("the CUDA driver has no ") + name);
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  ContextFunctions functions;
  find(functions.retain, "cuDevicePrimaryCtxRetain");
  find(functions.current, "cuCtxGetCurrent");
  find(functions.push, "cuCtxPushCurrent");
  find(functions.pop, "cuCtxPopCurrent");
  return functions;
}

// Found once: the driver stays the same as long as the process lives.
const ContextFunctions& Contexts() {
  static const ContextFunctions functions = FindContextFunctions();
  return functions;
}

void CheckDriver(CUresult result, const char* call, int device) {
  if (result == CUDA_SUCCESS) return;
  throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable,
              "CUDA device " + std::to_string(device) + ": " + call + ": error " + std::to_string(result));
}

CUcontext OpenPrimaryContext(int device) {
  CheckCuda(cudaInitDevice(device, 0, 0), "cudaInitDevice", device);
  CUcontext context = nullptr;
  CheckDriver(Contexts().retain(&context, device), "cuDevicePrimaryCtxRetain", device);
  return context;
}

// Contexts are retained as long as the process lives, as the runtime keeps them as well. The table is never destroyed,
// because what a program destroys last is also freed in a context.
CUcontext PrimaryContextOf(int device) {
  static auto& contexts = *new PerDevice<CUcontext>(OpenPrimaryContext, device);
  return contexts.Of(device);
}

}  // namespace

void CheckCuda(cudaError_t error, const std::string& call, int device) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the error is reported here, and not by the next call too
  throw Error(CodeOf(error), "CUDA device " + std::to_string(device) + ": " + call + ": " + cudaGetErrorString(error) +
                                 " (" + cudaGetErrorName(error) + ")");
}

// Pushes the device's primary context unless the thread is in it. The thread may be in another context of the device: a
// green one, or one that its program made. Streams and events of the primary context do not belong to those.
OnCudaDevice::Context::Context(int device) {
  const CUcontext primary = PrimaryContextOf(device);
  const ContextFunctions& contexts = Contexts();
  CUcontext current = nullptr;
  if (contexts.current(&current) == CUDA_SUCCESS && current == primary) return;
  CheckDriver(contexts.push(primary), "cuCtxPushCurrent", device);
  pushed_ = true;
}

OnCudaDevice::Context::~Context() {
  if (!pushed_) return;
  CUcontext ours = nullptr;
  static_cast<void>(Contexts().pop(&ours));
}

// The context is pushed first: without one, the runtime would open the thread's own device for this call.
OnCudaDevice::OnCudaDevice(int device) : context_(device) {
  CheckCuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode", device);
}

OnCudaDevice::~OnCudaDevice() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

void LoadKernel(const void* kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t loaded = cudaFuncGetAttributes(&attributes, kernel);
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  CheckCuda(loaded, "cudaFuncGetAttributes", device);
}

bool IsReachedOnCuda(int device, cudaEvent_t event) {
  const OnCudaDevice scope(device);
  const cudaError_t error = cudaEventQuery(event);
  if (error == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  CheckCuda(error, "cudaEventQuery", device);
  return true;
}

void GiveBackOnCuda(int device, const char* call, const std::function<cudaError_t()>& give_back) noexcept {
  try {
    const OnCudaDevice scope(device);
    CheckCuda(give_back(), call, device);
  } catch (const Error& error) {
    log::error("{}", error.what());
  }
}

}  // namespace layercast
