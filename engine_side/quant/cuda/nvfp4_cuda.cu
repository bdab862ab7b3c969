#include "engine_side/quant/cuda/bodies/small_block_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaNvfp4(const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values, std::uint8_t* scales,
               float* global_scale, CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunSmallBlocks<cuda::Nvfp4Format>(cuda::OnDevice(stream), piece, amax, values, scales, global_scale, fault);
}

void LoadCudaNvfp4() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunSmallBlocks<cuda::Nvfp4Format>(cuda::LoadOnDevice(), piece, {}, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
