#include "src/device/cuda/cuda_probe.h"

#include <cuda_runtime.h>

namespace layercast {

CudaProbe ProbeCuda() {
  CudaProbe probe;
  const cudaError_t error = cudaGetDeviceCount(&probe.devices);
  if (error == cudaSuccess && probe.devices > 0) return probe;
  static_cast<void>(cudaGetLastError());  // the error is reported here, and not by the next call too
  return {.devices = 0, .why_none = error == cudaSuccess ? "no CUDA device is visible" : cudaGetErrorString(error)};
}

}  // namespace layercast
