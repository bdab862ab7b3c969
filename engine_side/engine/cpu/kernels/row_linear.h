// Linear layers of the forward pass. Every output element is computed in one fixed order, whatever else is in the call,
// so that a token's result does not depend on its batch. Used by the decoder's blocks. Pure functions; thread-safe.
// Torch-free.
#pragma once

#include <optional>

#include "engine_side/engine/cpu/kernels/activations.h"
#include "engine_side/engine/cpu/kernels/weight_view.h"
#include "engine_side/engine/ranks/collective.h"
#include "layercast/dtype.h"

namespace layercast {

// A linear layer of this rank. Value; memory borrowed.
struct LinearWeights {
  WeightView weight;
  std::optional<WeightView> bias;
};

// y[t][n] = sum over c of x[t][c] * weight(n, c), in fp32, not rounded. The caller sizes y: x.rows() rows of
// weight.rows columns.
void Multiply(const Activations& x, const WeightView& weight, Activations& y);

// Sets y to those outputs of the layer that this rank holds, bias included, rounded to `dtype`.
void ColumnParallel(const Activations& x, const LinearWeights& linear, DType dtype, Activations& y);
// Sets y to the layer's output, summed over ranks, bias included, rounded to `dtype`. `x` holds this rank's columns of
// the input.
void RowParallel(const Activations& x, const LinearWeights& linear, DType dtype, Collective& collective,
                 Activations& y);

}  // namespace layercast
