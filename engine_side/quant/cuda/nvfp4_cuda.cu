#include "engine_side/quant/cuda/bodies/small_block_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaNvfp4(const CudaQuantization& q) {
  cuda::RunSmallBlocks<cuda::Nvfp4Format>(cuda::OnDevice(q.stream), q.piece, q.amax, q.values, q.byte_scales(),
                                          q.global_scale, q.fault);
}

void LoadCudaNvfp4() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunSmallBlocks<cuda::Nvfp4Format>(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
