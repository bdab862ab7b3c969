#include "engine_side/quant/cuda/bodies/rescale_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/for_elements.cuh"

namespace layercast {

void CudaRescale(std::uint8_t* codes, std::int64_t count, float from, float to, CUstream_st* stream) {
  cuda::RunRescale(cuda::ElementsOnDevice(stream), codes, count, from, to);
}

void CudaRescaleNvfp4(std::uint8_t* codes, std::uint8_t* scales, std::int64_t blocks, float from, float to,
                      CUstream_st* stream) {
  cuda::RunRescaleNvfp4(cuda::ElementsOnDevice(stream), codes, scales, blocks, from, to);
}

void LoadCudaRescale() {
  alignas(16) std::uint8_t codes[2];
  for (std::uint8_t* const at : {codes, codes + 1}) {  // another kernel if not aligned
    cuda::RunRescale(cuda::LoadElementsOnDevice(), at, 1, 1.0F, 2.0F);
    cuda::RunRescaleNvfp4(cuda::LoadElementsOnDevice(), at, nullptr, 1, 1.0F, 2.0F);
  }
}

}  // namespace layercast
