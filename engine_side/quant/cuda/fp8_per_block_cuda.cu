#include "engine_side/quant/cuda/bodies/block_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaFp8PerBlock(const CudaMatrix& piece, bool power_of_two, std::uint8_t* values, float* scales,
                     CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunFp8PerBlock(cuda::OnDevice(stream), piece, power_of_two, values, scales, fault);
}

void LoadCudaFp8PerBlock() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunFp8PerBlock(cuda::LoadOnDevice(), piece, false, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
