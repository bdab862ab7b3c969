#include "engine_side/quant/cuda/copy_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/quant/load_kernels.h"
#include "src/device/cuda/run.cuh"

namespace layercast {

void CudaCopy(const CudaMatrix& piece, void* values, CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunCopy(cuda::OnDevice(stream), piece, values, fault);
}

void LoadCudaCopy() {
  cuda::ForEveryWay([](const CudaMatrix& piece) { cuda::RunCopy(cuda::LoadOnDevice(), piece, nullptr, nullptr); });
}

}  // namespace layercast
