// Kernels that move elements into and out of strided tensors, and cast them on the way. As in
// engine_side/quant/cuda_kernels.h, a call puts one kernel on the stream and returns, pointers are to device memory and
// aligned to their elements, and the calling thread's device must be the stream's. Includes nothing of CUDA.
#pragma once

#include <cstdint>

#include "src/device/kernels/cuda_fault.h"
#include "src/tensor/walk.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

enum class DType : std::uint8_t;  // layercast/dtype.h

// Loads all kernels of this header, as LoadCudaKernels does for those of recipes.
void LoadMoveKernels();

// Move elements of 1, 2, 4 or 8 bytes as they are.
void CudaScatter(int element_bytes, const void* packed, void* to, const Walk& walk, std::int64_t first,
                 std::int64_t count, CUstream_st* stream);
void CudaGather(int element_bytes, const void* from, const Walk& walk, std::int64_t first, std::int64_t count,
                void* packed, CUstream_st* stream);
void CudaZero(int element_bytes, void* to, const Walk& walk, std::int64_t count, CUstream_st* stream);
// Casts f16, bf16, f32 or f64 to another one of these. The first element that is not finite any more is merged into
// `fault`, as a CudaCastFault.
void CudaScatterCast(DType from, const void* packed, DType to_dtype, void* to, const Walk& walk, std::int64_t first,
                     std::int64_t count, CudaFaultWord* fault, CUstream_st* stream);
// Computes -exp(x) of f16, bf16, f32 or f64.
void CudaNegateExponential(DType dtype, const void* from, std::int64_t count, float* to, CUstream_st* stream);

}  // namespace layercast
