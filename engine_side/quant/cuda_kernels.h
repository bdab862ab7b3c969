// The recipes' kernels for CUDA devices: they turn a weight in device memory into the same bytes as on the CPU
// (RECIPES.md). Each call puts its kernels on the given stream and returns. It neither waits nor allocates, so it may
// be captured into a graph. The functions are there if the build has CUDA (LAYERCAST_HAVE_CUDA). This header includes
// nothing of CUDA, and is valid C++17 too.
//
// The calling thread's device must be the stream's, and all pointers must be to its memory. Outputs are packed,
// row-major and those of the whole weight, as the recipe's KernelTensors lists them. Any alignment will do; memory that
// is aligned to 16 bytes, with rows of whole 16 bytes, is fastest. A call throws Error if a launch fails.
#pragma once

#include <cstdint>
#include <string_view>

#include "src/device/kernels/cuda_fault.h"
#include "src/device/kernels/cuda_matrix.h"

namespace layercast {

// The largest magnitude of the whole fused weight over all ranks, which must be finite: either a number that the caller
// knows, or one that lies in device memory by the time the kernel runs (CudaAmax of device_scan_kernels.h may have put
// it there). Value; borrows.
struct CudaTensorAmax {
  const float* device = nullptr;  // null if `value` has it
  float value = 0.0F;
};

// Rows of a weight and what they become, all in device memory. Value; borrows.
struct CudaQuantization {
  CudaMatrix piece;
  bool power_of_two = false;  // RecipeOptions::power_of_two_scales
  CudaTensorAmax amax;        // of the whole weight, if the recipe's scales are made from it
  // The magnitudes of the whole weight's rows, which must be finite and not negative. Null if each row's own is used.
  const float* row_amax = nullptr;
  std::uint8_t* values = nullptr;
  void* scales = nullptr;
  float* global_scale = nullptr;  // if the recipe has one
  CudaFaultWord* fault = nullptr;
  CUstream_st* stream = nullptr;

  std::uint8_t* byte_scales() const { return static_cast<std::uint8_t*>(scales); }
  float* float_scales() const { return static_cast<float*>(scales); }
};

// A recipe's kernel. Pieces begin and end where the recipe's row_granularity allows, and columns are whole blocks where
// it asks for them.
using CudaKernel = void(const CudaQuantization& quantization);

// The kernel of the recipe called `name`, which must not be `none`, as that quantizes nothing. Throws kUnsupported,
// naming it, if there is none.
CudaKernel& CudaKernelOf(std::string_view name);

// Loads all kernels of this header onto the calling thread's device. Otherwise each is loaded when it is first started,
// which may wait for everything that runs on the device, including NCCL's kernels, which wait for their peers.
void LoadCudaKernels();

// none. `values` has the weight's dtype.
CudaKernel CudaCopy;

// Rescale the codes of a weight that has one scale to a larger one, in place (rescale.h): FP8 per tensor, and blocks of
// NVFP4.
void CudaRescale(std::uint8_t* codes, std::int64_t count, float from, float to, CUstream_st* stream);
void CudaRescaleNvfp4(std::uint8_t* codes, std::uint8_t* scales, std::int64_t blocks, float from, float to,
                      CUstream_st* stream);

// A quantized weight, row-major. It is what CodeFormat (dequantize.h) describes, but with blocks whose sizes are
// spelled out. Value; borrows.
struct CudaCodes {
  const std::uint8_t* codes = nullptr;
  const void* scales = nullptr;         // one for each block; those at the ends may be partial
  const float* global_scale = nullptr;  // null if there is none
  std::int64_t rows = 0, cols = 0;
  std::int64_t block_rows = 1, block_cols = 1;
  DType elements;    // f8_e4m3, i8 or f4
  DType scale_type;  // f32, f8_e8m0 or f8_e4m3
};

// Computes code * scale in fp32, rounded to f32, bf16 or f16. `values` is aligned to its elements.
void CudaDequantize(const CudaCodes& weight, DType dtype, void* values, CUstream_st* stream);

}  // namespace layercast
