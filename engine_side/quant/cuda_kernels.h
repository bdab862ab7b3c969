// The recipes' kernels for CUDA devices: what a weight in device memory becomes, the same bytes as on the CPU
// (RECIPES.md). Each call puts its kernels on the given stream and returns: no wait, no allocation, so it may be
// captured into a graph. There where the build has CUDA (LAYERCAST_HAVE_CUDA). Includes nothing of CUDA, and is C++17
// too.
//
// The calling thread's device is the stream's. All pointers are of its memory. Outputs are packed, row-major, of the
// whole weight, as the recipe's KernelTensors lists them. Any alignment will do; what is aligned to 16 bytes, with rows
// of whole 16 bytes, is quick. A call throws Error where a launch fails.
#pragma once

#include <cstdint>

#include "src/device/cuda_fault.h"
#include "src/device/cuda_matrix.h"

namespace layercast {

// The largest magnitude of the whole fused weight over all ranks: a finite number that the caller knows, or one that
// lies in device memory by the time that the kernel runs (CudaAmax of scan_kernels.h may have put it there).
struct CudaTensorAmax {
  const float* device = nullptr;  // null: `value`
  float value = 0.0F;
};

// Loads all kernels of this header onto the calling thread's device; else each is loaded when it is first started. That
// may wait for all that runs on the device, NCCL's kernels too, which wait for their peers.
void LoadCudaKernels();

// none. `values` has the weight's dtype.
void CudaCopy(const CudaMatrix& piece, void* values, CudaFaultWord* fault, CUstream_st* stream);

// fp8_per_tensor.
void CudaFp8PerTensor(const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values, float* scale,
                      CudaFaultWord* fault, CUstream_st* stream);

// fp8_per_channel and int8_per_channel. `row_amax` is of the weight's rows, from its first on: finite numbers, not
// negative; or null: each row's own.
void CudaFp8PerChannel(const CudaMatrix& piece, const float* row_amax, std::uint8_t* values, float* scales,
                       CudaFaultWord* fault, CUstream_st* stream);
void CudaInt8PerChannel(const CudaMatrix& piece, const float* row_amax, std::uint8_t* values, float* scales,
                        CudaFaultWord* fault, CUstream_st* stream);

// fp8_per_block. first_row is a multiple of 128, and so is rows, but for the weight's last.
void CudaFp8PerBlock(const CudaMatrix& piece, bool power_of_two, std::uint8_t* values, float* scales,
                     CudaFaultWord* fault, CUstream_st* stream);

// mxfp8. cols is a multiple of 32.
void CudaMxfp8(const CudaMatrix& piece, std::uint8_t* values, std::uint8_t* scales, CudaFaultWord* fault,
               CUstream_st* stream);

// mxfp4. cols is a multiple of 32.
void CudaMxfp4(const CudaMatrix& piece, std::uint8_t* values, std::uint8_t* scales, CudaFaultWord* fault,
               CUstream_st* stream);

// nvfp4. cols is a multiple of 16.
void CudaNvfp4(const CudaMatrix& piece, CudaTensorAmax amax, std::uint8_t* values, std::uint8_t* scales,
               float* global_scale, CudaFaultWord* fault, CUstream_st* stream);

// Codes of a weight that has one scale, brought to a larger one where they lie (rescale.h): of FP8 per tensor, and
// blocks of NVFP4.
void CudaRescale(std::uint8_t* codes, std::int64_t count, float from, float to, CUstream_st* stream);
void CudaRescaleNvfp4(std::uint8_t* codes, std::uint8_t* scales, std::int64_t blocks, float from, float to,
                      CUstream_st* stream);

// A quantized weight, row-major (CodeFormat of dequantize.h, whose blocks are numbers here). Value; borrows.
struct CudaCodes {
  const std::uint8_t* codes = nullptr;
  const void* scales = nullptr;         // one for each block; those at the ends may be partial
  const float* global_scale = nullptr;  // null: none
  std::int64_t rows = 0, cols = 0;
  std::int64_t block_rows = 1, block_cols = 1;
  DType elements;    // f8_e4m3, i8 or f4
  DType scale_type;  // f32, f8_e8m0 or f8_e4m3
};

// (code * scale) in fp32, rounded to f32, bf16 or f16. `values` is aligned to its elements.
void CudaDequantize(const CudaCodes& weight, DType dtype, void* values, CUstream_st* stream);

}  // namespace layercast
