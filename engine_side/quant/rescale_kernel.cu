#include "engine_side/quant/cuda/for_elements.cuh"
#include "engine_side/quant/cuda/rescale_body.cuh"
#include "engine_side/quant/cuda_kernels.h"

namespace layercast {

void CudaRescale(std::uint8_t* codes, std::int64_t count, float from, float to, CUstream_st* stream) {
  cuda::RunRescale(cuda::ElementsOnDevice(stream), codes, count, from, to);
}

void CudaRescaleNvfp4(std::uint8_t* codes, std::uint8_t* scales, std::int64_t blocks, float from, float to,
                      CUstream_st* stream) {
  cuda::RunRescaleNvfp4(cuda::ElementsOnDevice(stream), codes, scales, blocks, from, to);
}

}  // namespace layercast
