#include "engine_side/quant/cuda/bodies/copy_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaCopy(const CudaMatrix& piece, void* values, CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunCopy(cuda::OnDevice(stream), piece, values, fault);
}

void LoadCudaCopy() {
  cuda::ForEveryWay([](const CudaMatrix& piece) { cuda::RunCopy(cuda::LoadOnDevice(), piece, nullptr, nullptr); });
}

}  // namespace layercast
