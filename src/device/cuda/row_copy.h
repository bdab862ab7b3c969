// How rows that lie apart are copied on a CUDA device: by one two-dimensional copy if possible. Includes nothing of
// CUDA. Used by whoever queues copies of regions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast {

// The largest distance between rows that cudaMemcpy2D takes, at either end.
inline constexpr std::size_t kMaxPitch = (std::size_t{1} << 31) - 1;

enum class RowCopy : std::uint8_t {
  kNone,     // there are no bytes
  kOneRun,   // they are one contiguous run, of any length
  kPitched,  // one two-dimensional copy
  kSingly,   // the rows are too far apart: one copy for each row
};

// How to copy `rows` runs of `row_bytes`, which are `stride` bytes apart, so that they are packed.
constexpr RowCopy HowToCopyRows(std::size_t row_bytes, std::size_t rows, std::size_t stride) {
  if (row_bytes == 0 || rows == 0) return RowCopy::kNone;
  if (rows == 1 || stride == row_bytes) return RowCopy::kOneRun;
  return stride <= kMaxPitch && stride >= row_bytes ? RowCopy::kPitched : RowCopy::kSingly;
}

}  // namespace layercast
