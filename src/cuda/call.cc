#include "src/cuda/call.h"

#include "layercast/error.h"

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

}  // namespace

void CheckCuda(cudaError_t error, const std::string& call, int device) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // was told here: it is not the next call's
  throw Error(CodeOf(error), "CUDA device " + std::to_string(device) + ": " + call + ": " + cudaGetErrorString(error) +
                                 " (" + cudaGetErrorName(error) + ")");
}

OnCudaDevice::OnCudaDevice(int device) {
  CheckCuda(cudaGetDevice(&before_), "cudaGetDevice", device);
  CheckCuda(cudaSetDevice(device), "cudaSetDevice", device);
}

OnCudaDevice::~OnCudaDevice() { static_cast<void>(cudaSetDevice(before_)); }

}  // namespace layercast
