#include "engine_side/quant/cuda/bodies/small_block_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaMxfp4(const CudaQuantization& q) {
  cuda::RunSmallBlocks<cuda::Mxfp4Format>(cuda::OnDevice(q.stream), q.piece, {}, q.values, q.byte_scales(), nullptr,
                                          q.fault);
}

void LoadCudaMxfp4() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunSmallBlocks<cuda::Mxfp4Format>(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
