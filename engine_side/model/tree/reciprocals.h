// Scales that checkpoints store as their reciprocals (compressed-tensors' `weight_global_scale`). Used where they are
// placed.
#pragma once

#include <cstddef>
#include <vector>

namespace layercast {

// Returns 1 / x for each of the `count` fp32 numbers at `numbers`. Throws kCorrupt ("expected a finite number above
// zero, whose reciprocal is the scale, got 0.000000") for any other number, and for one whose reciprocal is not finite.
std::vector<float> Reciprocals(const std::byte* numbers, std::size_t count);

}  // namespace layercast
