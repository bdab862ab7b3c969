// The shape of a quantized weight's scales, whether a checkpoint brings them or a recipe makes them.
#pragma once

#include <cstdint>

#include "layercast/tensor.h"
#include "src/base/rounding.h"

namespace layercast {

// Of a weight [rows, cols] in blocks of `block_rows` x `block_cols`, of which the last ones may be smaller. No block
// columns: a block goes over the whole row. No block rows either: one scale for the whole weight.
inline Shape ScaleShape(std::int64_t rows, std::int64_t cols, std::int64_t block_rows, std::int64_t block_cols) {
  if (block_rows == 0) return {1};
  return {CeilDivide(rows, block_rows), block_cols == 0 ? 1 : CeilDivide(cols, block_cols)};
}

}  // namespace layercast
