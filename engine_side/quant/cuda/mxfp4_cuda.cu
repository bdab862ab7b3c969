#include "engine_side/quant/cuda/bodies/small_block_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaMxfp4(const CudaMatrix& piece, std::uint8_t* values, std::uint8_t* scales, CudaFaultWord* fault,
               CUstream_st* stream) {
  cuda::RunSmallBlocks<cuda::Mxfp4Format>(cuda::OnDevice(stream), piece, {}, values, scales, nullptr, fault);
}

void LoadCudaMxfp4() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunSmallBlocks<cuda::Mxfp4Format>(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
