// A weight in device memory, as CUDA kernels take it. Includes nothing of CUDA, and is valid C++17.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

enum class DType : std::uint8_t;  // layercast/dtype.h

// Rows [first_row, first_row + rows) of a weight, with all of its columns; bf16, f16 or f32. Value; borrows the memory.
struct CudaMatrix {
  DType dtype;
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // bytes
  std::int64_t first_row = 0;
};

}  // namespace layercast
