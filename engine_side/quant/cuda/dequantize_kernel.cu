#include "engine_side/quant/cuda/bodies/dequantize_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/for_elements.cuh"

namespace layercast {

void CudaDequantize(const CudaCodes& weight, DType dtype, void* values, CUstream_st* stream) {
  cuda::RunDequantize(cuda::ElementsOnDevice(stream), weight, dtype, values);
}

void LoadCudaDequantize() {
  for (const DType elements : {cuda::kDTypeF8E4M3, cuda::kDTypeI8, cuda::kDTypeF4}) {
    for (const DType dtype : {cuda::kDTypeBF16, cuda::kDTypeF16, cuda::kDTypeF32}) {
      CudaCodes weight{};
      weight.elements = elements;
      cuda::RunDequantize(cuda::LoadElementsOnDevice(), weight, dtype, nullptr);
    }
  }
}

}  // namespace layercast
