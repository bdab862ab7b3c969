#include "engine_side/quant/cuda/dequantize_body.cuh"
#include "engine_side/quant/cuda/for_elements.cuh"
#include "engine_side/quant/cuda_kernels.h"

namespace layercast {

void CudaDequantize(const CudaCodes& weight, DType dtype, void* values, CUstream_st* stream) {
  cuda::RunDequantize(cuda::ElementsOnDevice(stream), weight, dtype, values);
}

}  // namespace layercast
