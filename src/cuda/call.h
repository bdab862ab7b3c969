// How a call of the CUDA runtime is made: on the right device, and with an Error where it fails. For the sources behind
// this folder's headers and for those of CUDA kernels; the one header here that needs CUDA's.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace layercast {

// Throws an Error naming call and device unless `error` is cudaSuccess: kResourceExhausted where memory ran out,
// kUnsupported where there is no such device or no driver for it, else kUnavailable.
void CheckCuda(cudaError_t error, const std::string& call, int device);

// The calling thread's device until the end of the scope.
class OnCudaDevice {
 public:
  explicit OnCudaDevice(int device);
  OnCudaDevice(const OnCudaDevice&) = delete;
  OnCudaDevice& operator=(const OnCudaDevice&) = delete;
  ~OnCudaDevice();

 private:
  int before_ = 0;
};

}  // namespace layercast
