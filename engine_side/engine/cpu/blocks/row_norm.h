// RMS norms of the forward pass, whose weights are read at their captured addresses. Used by the decoder and by its
// blocks. Pure functions; thread-safe.
#pragma once

#include <span>
#include <vector>

#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/cpu/kernels/activations.h"

namespace layercast {

// The factors by which a row is multiplied, computed from the weight as it is now.
std::vector<float> FactorsOf(const NormOperand& norm);
// Normalizes `row` in place. `factors` are those of this pass.
void Normalize(const NormOperand& norm, std::span<const float> factors, std::span<float> row);
// Normalizes `row` in place by a sum of squares over norm.total_size elements, which are more than the row has.
void Normalize(const NormOperand& norm, float sum_of_squares, std::span<const float> factors, std::span<float> row);
// Sets `to` to the norm of every row of `from`.
void Normalize(const NormOperand& norm, const Activations& from, Activations& to);

}  // namespace layercast
