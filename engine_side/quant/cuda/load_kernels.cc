#include "engine_side/quant/cuda/load_kernels.h"

#include "engine_side/quant/cuda_kernels.h"

namespace layercast {

void LoadCudaKernels() {
  LoadCudaCopy();
  LoadCudaFp8PerTensor();
  LoadCudaFp8PerChannel();
  LoadCudaInt8PerChannel();
  LoadCudaFp8PerBlock();
  LoadCudaMxfp8();
  LoadCudaMxfp4();
  LoadCudaNvfp4();
  LoadCudaRescale();
  LoadCudaDequantize();
}

}  // namespace layercast
