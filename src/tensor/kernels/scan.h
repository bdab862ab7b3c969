// What a manifest says about a tensor's values, in one pass over memory: the largest magnitude, per tensor or
// per row, and the first NaN or infinity. Publishers use it on what they send, engines on what they read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layercast/dtype.h"
#include "layercast/tensor.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// A host matrix of `rows` x `cols` elements, rows `row_stride` bytes apart. Value; the memory is borrowed.
struct MatrixView {
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  // bytes

  const std::byte* row(std::int64_t index) const { return data + index * row_stride; }
};

// A contiguous tensor as the matrix whose rows are its last dimension.
MatrixView AsMatrix(const TensorSpec& spec, const std::byte* data);

struct ScanResult {
  float amax = 0.0F;                   // over the finite values; exact for types of up to 32 bits, else rounded
  std::int64_t first_non_finite = -1;  // row * cols + col of the first NaN or infinity; -1: all finite
};

// Scans floating-point types, and C64 by its two parts; integer types give {0, -1}. The result does not depend on the
// number of threads or the instruction set. There are kernels for bf16, f16, f32 and f8_e4m3; the rest take a plain
// loop.
ScanResult Scan(const MatrixView& matrix, WorkerPool& pool);
// By the calling thread alone, which may be one of a pool's.
ScanResult Scan(const MatrixView& matrix);

// Writes the largest finite magnitude of each row to `amax`, which has matrix.rows elements.
void ScanRows(const MatrixView& matrix, WorkerPool& pool, std::span<float> amax);

}  // namespace layercast
