#include "engine_side/quant/cuda/bodies/row_body.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/run.cuh"

namespace layercast {

void CudaInt8PerChannel(const CudaQuantization& q) {
  cuda::RunRows<cuda::Int8RowEncoder>(cuda::OnDevice(q.stream), q.piece, q.row_amax, q.values, q.float_scales(),
                                      q.fault);
}

void LoadCudaInt8PerChannel() {
  cuda::ForEveryWay([](const CudaMatrix& piece) {
    cuda::RunRows<cuda::Int8RowEncoder>(cuda::LoadOnDevice(), piece, nullptr, nullptr, nullptr, nullptr);
  });
}

}  // namespace layercast
