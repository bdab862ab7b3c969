// Turns quantized weights, as codes and scales, back to full precision. RECIPES.md says what is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layercast/dtype.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// A quantized weight, row-major and contiguous. There is one scale for each block of rows x columns; the last blocks
// may be partial. Value; borrows the codes.
struct QuantizedWeight {
  const std::uint8_t* codes = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::vector<float> scales;
  std::int64_t block_rows = 1, block_cols = 1;
  DType elements = DType::kF8E4M3;   // f8_e4m3, i8, or f4: two in a byte, the even column's in its low half
  int packed_bits = 0;               // i8: codes have 4 or 8 bits, offset by half their range; 4 bits pack as f4 does
  bool pairs_rows = false;           // f4: a byte has the codes of two rows, not columns; the even row's is the low one
  std::vector<float> zero_points{};  // empty, or one for each of the scales
};

// How a recipe's kernel tensors hold a weight: codes, then scales, then perhaps a scale of all scales. The code that
// reads them, on the host and on a device, knows nothing else of a recipe. Value.
struct CodeFormat {
  DType elements = DType::kF8E4M3;              // as QuantizedWeight's
  DType scales = DType::kF32;                   // or f8_e8m0 (stored as u8), or f8_e4m3
  std::int64_t block_rows = 0, block_cols = 0;  // 0 means all
  bool has_global_scale = false;                // in fp32

  // How many columns a weight has whose codes lie in rows of so many bytes.
  std::int64_t ColsOf(std::int64_t row_bytes) const { return elements == DType::kF4 ? 2 * row_bytes : row_bytes; }
  std::int64_t BlockRowsOf(std::int64_t rows) const { return block_rows == 0 ? rows : block_rows; }
  std::int64_t BlockColsOf(std::int64_t cols) const { return block_cols == 0 ? cols : block_cols; }
};

// Computes (value - zero point) * scale in fp32, rounded to `dtype` (f32, bf16 or f16), row-major into `values`.
// Returns what Cast from fp32 returns (src/tensor/cast.h).
bool Dequantize(const QuantizedWeight& weight, DType dtype, std::byte* values, WorkerPool& pool);

}  // namespace layercast
