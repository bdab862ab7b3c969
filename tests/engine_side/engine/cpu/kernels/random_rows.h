// What the tests of the engine's kernels compute with.
#pragma once

#include <cstddef>
#include <random>

#include "engine_side/engine/cpu/kernels/activations.h"

namespace layercast {

inline Activations RandomRows(std::size_t rows, std::size_t cols, std::mt19937& random) {
  Activations x(rows, cols);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) x.row(r)[c] = std::normal_distribution<float>(0.0F, 1.0F)(random);
  }
  return x;
}

}  // namespace layercast
