#include "engine_side/quant/cuda/bodies/one_scale_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaFp8PerTensor(const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values, float* scale,
                      CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunFp8PerTensor(cuda::OnDevice(stream), piece, amax, values, scale, fault);
}

void LoadCudaFp8PerTensor() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunFp8PerTensor(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
