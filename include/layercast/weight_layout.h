// How an engine's kernels want the weights in memory that its recipe quantizes.
#pragma once

#include <cstdint>

#include "layercast/export.h"

namespace layercast {

// Value. The default: in the shapes that the recipe lists, packed or with any strides.
struct LAYERCAST_PUBLIC WeightLayout {
  // Rows (outputs) and columns (inputs) are padded up to multiples of these: captured buffers have the shapes that the
  // recipe gives to a weight of the padded size. Every commit, from the first on, writes zeros beyond the weight, to
  // values and scales alike.
  std::int64_t row_alignment = 1;
  std::int64_t column_alignment = 1;
  // Buffers of values are [columns, rows], as torch's weight.t(). Scales keep their shape.
  bool transposed = false;
  // Buffers of values have the elements of a column next to each other, as CUTLASS wants its [columns, rows]: their
  // last two strides are 1 and at least the column's length. False: any strides will do.
  bool column_major = false;

  bool operator==(const WeightLayout&) const = default;
};

}  // namespace layercast
