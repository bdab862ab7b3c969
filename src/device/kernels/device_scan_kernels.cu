#include "src/device/kernels/device_scan_kernels.h"

#include "src/device/kernels/amax_body.cuh"
#include "src/device/kernels/column_amax_body.cuh"
#include "src/device/kernels/find_element.cuh"
#include "src/device/kernels/for_elements.cuh"
#include "src/device/kernels/run.cuh"

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

void CudaFind(int element_bytes, const void* from, std::int64_t count, std::uint64_t mask, std::uint64_t value,
              CudaFaultWord* fault, CUstream_st* stream) {
  cuda::RunFind(cuda::ElementsOnDevice(stream), element_bytes, from, count, mask, value, fault);
}

void LoadScanKernels() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunAmax(cuda::LoadOnDevice(), piece, nullptr, nullptr);
    cuda::RunRowAmax(cuda::LoadOnDevice(), piece, nullptr, nullptr);
    cuda::RunColumnAmax(cuda::LoadElementsOnDevice(), piece, 1, nullptr, nullptr);
  });
  for (const int bytes : {1, 2, 4, 8}) cuda::RunFind(cuda::LoadElementsOnDevice(), bytes, nullptr, 0, 0, 0, nullptr);
}

}  // namespace layercast
