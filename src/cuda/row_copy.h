// How rows that lie apart are copied on a CUDA device: by one copy of two dimensions, where that can be. Plain: needs
// no CUDA. Used by whoever queues copies of regions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace layercast {

// What cudaMemcpy2D takes as the distance between rows, at either end.
inline constexpr std::size_t kMaxPitch = (std::size_t{1} << 31) - 1;

enum class RowCopy : std::uint8_t {
  kNone,     // there are no bytes
  kOneRun,   // they are one run, as long as it may be
  kPitched,  // a copy of two dimensions
  kSingly,   // too far apart for that: a copy for each row
};

// `rows` runs of `row_bytes`, `stride` apart, to packed ones.
constexpr RowCopy HowToCopyRows(std::size_t row_bytes, std::size_t rows, std::size_t stride) {
  if (row_bytes == 0 || rows == 0) return RowCopy::kNone;
  if (rows == 1 || stride == row_bytes) return RowCopy::kOneRun;
  return stride <= kMaxPitch && stride >= row_bytes ? RowCopy::kPitched : RowCopy::kSingly;
}

}  // namespace layercast
