#include "engine_side/quant/cuda/cast_body.cuh"
#include "engine_side/quant/cuda/run.cuh"
#include "engine_side/quant/cuda_kernels.h"

namespace layercast {

void CudaCast(const CudaMatrix& source, DType to, void* destination, std::int64_t destination_stride,
              CUstream_st* stream) {
  cuda::RunCast(cuda::OnDevice(stream), source, to, destination, destination_stride);
}

}  // namespace layercast
