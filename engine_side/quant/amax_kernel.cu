#include "engine_side/quant/cuda/amax_body.cuh"
#include "engine_side/quant/cuda/column_amax_body.cuh"
#include "engine_side/quant/cuda/for_elements.cuh"
#include "engine_side/quant/cuda/run.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "engine_side/quant/load_kernels.h"

namespace layercast {

void CudaAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunAmax(cuda::OnDevice(stream), piece, amax, fault);
}

void CudaRowAmax(const CudaMatrix& piece, float* amax, CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunRowAmax(cuda::OnDevice(stream), piece, amax, fault);
}

void CudaColumnAmax(const CudaMatrix& first, std::int64_t matrices, float* amax, CudaFaultWord* fault,
                    CUstream_st* stream) {
  cuda::RunColumnAmax(cuda::ElementsOnDevice(stream), first, matrices, amax, fault);
}

void LoadCudaAmax() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunAmax(cuda::LoadOnDevice(), piece, nullptr, nullptr);
    cuda::RunRowAmax(cuda::LoadOnDevice(), piece, nullptr, nullptr);
    cuda::RunColumnAmax(cuda::LoadElementsOnDevice(), piece, 1, nullptr, nullptr);
  });
}

}  // namespace layercast
