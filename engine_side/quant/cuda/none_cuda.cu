#include "engine_side/quant/cuda/bodies/copy_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaCopy(const CudaQuantization& q) { cuda::RunCopy(cuda::OnDevice(q.stream), q.piece, q.values, q.fault); }

void LoadCudaCopy() {
  cuda::ForEveryWay([](const CudaMatrix& piece) { cuda::RunCopy(cuda::LoadOnDevice(), piece, nullptr, nullptr); });
}

}  // namespace layercast
