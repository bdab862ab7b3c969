#include "engine_side/quant/cuda/bodies/block_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaFp8PerBlock(const CudaQuantization& q) {
  cuda::RunFp8PerBlock(cuda::OnDevice(q.stream), q.piece, q.power_of_two, q.values, q.float_scales(), q.fault);
}

void LoadCudaFp8PerBlock() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunFp8PerBlock(cuda::LoadOnDevice(), piece, false, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
