#include "engine_side/quant/cuda/bodies/one_scale_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaFp8PerTensor(const CudaQuantization& q) {
  cuda::RunFp8PerTensor(cuda::OnDevice(q.stream), q.piece, q.amax, q.values, q.float_scales(), q.fault);
}

void LoadCudaFp8PerTensor() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunFp8PerTensor(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
