#include "engine_side/quant/cuda/bodies/row_body.cuh"
#include "engine_side/quant/cuda/load_kernels.h"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaFp8PerChannel(const CudaMatrix& piece, const float* row_amax, std::uint8_t* values, float* scales,
                       CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunRows<cuda::Fp8RowEncoder>(cuda::OnDevice(stream), piece, row_amax, values, scales, fault);
}

void LoadCudaFp8PerChannel() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunRows<cuda::Fp8RowEncoder>(cuda::LoadOnDevice(), piece, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
