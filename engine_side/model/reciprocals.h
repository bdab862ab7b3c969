// Numbers that checkpoints hold one divided by (compressed-tensors' `weight_global_scale`). Used where they are placed.
#pragma once

#include <cstddef>
#include <vector>

namespace layercast {

// Of `count` numbers in fp32, one divided by each. Throws kCorrupt "expected a finite number above zero, whose
// reciprocal is the scale, got 0.000000", also for one whose reciprocal is not finite.
std::vector<float> Reciprocals(const std::byte* numbers, std::size_t count);

}  // namespace layercast
