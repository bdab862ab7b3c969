// How the weights that a recipe quantizes lie in the engine's memory, as its kernels need them. Part of
// QuantizationConfig.
#pragma once

#include <cstdint>

#include "layercast/export.h"

namespace layercast {

// The default layout: buffers have the shapes that the recipe lists, packed or with any strides. Value.
struct LAYERCAST_PUBLIC WeightLayout {
  // Rows (outputs) and columns (inputs) are padded up to multiples of these: captured buffers have the shapes that the
  // recipe gives to a weight of the padded size. Every commit, from the first on, writes zeros beyond the weight, to
  // values and scales alike.
  std::int64_t row_alignment = 1;
  std::int64_t column_alignment = 1;
  // True: buffers of values are [columns, rows], as torch's weight.t(). Scales keep their shape.
  bool transposed = false;
  // True: buffers of values have the elements of a column next to each other, as CUTLASS wants its [columns, rows]:
  // their last two strides are 1 and at least the column's length. False: any strides will do.
  bool column_major = false;

  bool operator==(const WeightLayout&) const = default;
};

}  // namespace layercast
