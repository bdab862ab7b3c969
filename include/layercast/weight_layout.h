// How an engine's kernels want the weights in memory that its recipe quantizes.
#pragma once

#include <cstdint>

#include "layercast/export.h"

namespace layercast {

// Value. The default: as the recipe lists them, packed or in whatever strides.
struct LAYERCAST_PUBLIC WeightLayout {
  // Rows (outputs) and columns (inputs) are padded up to multiples of these: captured buffers have the shapes that the
  // recipe gives to a weight so large. What lies there beyond the weight is zero, values and scales alike, from the
  // first commit on: every commit writes it.
  std::int64_t row_alignment = 1;
  std::int64_t column_alignment = 1;
  // Buffers of values are [columns, rows], as torch's weight.t(). Scales keep their shape.
  bool transposed = false;
  // Buffers of values have elements of a column one behind the other, as CUTLASS wants its [columns, rows]: their last
  // two strides are 1 and no less than the column's length. False: any strides will do.
  bool column_major = false;

  bool operator==(const WeightLayout&) const = default;
};

}  // namespace layercast
