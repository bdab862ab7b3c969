// Operations of a forward pass on one token's row: rounding, normalization, rotation, gated activations. Used by the
// decoder's blocks. Pure functions; thread-safe. Torch-free.
#pragma once

#include <span>

#include "engine_side/engine/cpu/kernels/activation.h"
#include "layercast/dtype.h"
#include "layercast/model/layer_context.h"

namespace layercast {

// Rounds to the nearest value of `dtype`, ties to even, as torch does after every operation. Does nothing for f32.
void RoundTo(DType dtype, std::span<float> values);

// y = round(round(x / sqrt(mean(x^2) + epsilon)) * factors). The inner rounding is left out for styles other than
// kWeight, which transformers computes in fp32 throughout.
void RmsNorm(std::span<const float> x, std::span<const float> factors, float epsilon, NormStyle style, DType dtype,
             std::span<float> y);
// The two halves of RmsNorm, for a mean over more elements than x has.
float SumOfSquares(std::span<const float> x);
void NormalizeBy(float mean_square, std::span<const float> x, std::span<const float> factors, float epsilon,
                 NormStyle style, DType dtype, std::span<float> y);

// Rotates the pairs (i, i + n/2) of a head by the angles whose cosines and sines are given (n/2 of each). Rounds every
// product and sum to `dtype`.
void Rotate(std::span<float> head, std::span<const float> cos, std::span<const float> sin, DType dtype);

// values := round(activation(values)).
void Activate(Activation activation, std::span<float> values, DType dtype);

// gate := round(activation(gate)) * up, rounded.
void GateMultiply(Activation activation, std::span<float> gate, std::span<const float> up, DType dtype);

// gate := (u + 1) * g * sigmoid(alpha * g) with g = min(gate, limit) and u = up clamped to [-limit, limit], rounded
// after every operation. A NaN stays NaN.
void ClampedGateMultiply(float alpha, float limit, std::span<float> gate, std::span<const float> up, DType dtype);

// y := round(y + scale * x).
void AddScaled(float scale, std::span<const float> x, DType dtype, std::span<float> y);

// values := cap * tanh(values / cap), in fp32. A NaN stays NaN.
void SoftCap(float cap, std::span<float> values);

}  // namespace layercast
