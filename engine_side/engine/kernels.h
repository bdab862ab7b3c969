// The arithmetic of a forward pass on CPU: fp32 activations against weights of any kernel format. Every output
// element is computed in one fixed order, whatever else is in the call: a token's result does not depend on its batch.
// Used by the decoder. Pure functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/engine/weight_view.h"
#include "layercast/dtype.h"

namespace layercast {

// Rows of activations, each padded with zeros to whole vectors. Resource; one thread only.
class Activations {
 public:
  static constexpr std::size_t kPad = kRowPad;  // floats

  Activations() = default;
  Activations(std::size_t rows, std::size_t cols) { Reset(rows, cols); }

  void Reset(std::size_t rows, std::size_t cols);  // all zero
  float* row(std::size_t index) { return values_.data() + index * stride_; }
  const float* row(std::size_t index) const { return values_.data() + index * stride_; }
  std::span<float> values() { return values_; }  // of all rows, padding included
  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  std::size_t stride() const { return stride_; }

 private:
  std::vector<float> values_;
  std::size_t rows_ = 0, cols_ = 0, stride_ = 0;
};

// Rounds to the nearest value of `dtype` (f32: leaves alone), ties to even, as torch does after every operation.
void RoundTo(DType dtype, std::span<float> values);

// y[t][first + n] = sum over c of x[t][c] * weight(n, c), in fp32, not rounded; x.cols() == weight.cols.
void Linear(const Activations& x, const WeightView& weight, Activations& y);

// y = round(round(x / sqrt(mean(x^2) + epsilon)) * weight).
void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon, DType dtype, std::span<float> y);

// Rotates the pairs (i, i + n/2) of a head by the angles whose cosines and sines are given (n/2 of each).
void Rotate(std::span<float> head, std::span<const float> cos, std::span<const float> sin, DType dtype);

// gate := round(silu(gate)) * up, rounded.
void SiluMultiply(std::span<float> gate, std::span<const float> up, DType dtype);

// Keys or values of one head: `count` rows, `stride` floats apart, zero-padded to whole vectors.
struct HeadRows {
  const float* first = nullptr;
  std::size_t stride = 0;
  std::size_t count = 0;
};

// out = softmax(scale * keys . query) . values, in fp32, for one head. `query` and `out` are padded like the rows,
// which are `padded` floats long. `scores` is scratch for `count` floats, padded to whole vectors.
void Attend(const float* query, const HeadRows& keys, const HeadRows& values, float scale, std::size_t padded,
            std::vector<float>& scores, float* out);

// Rounded up to whole vectors.
constexpr std::size_t Padded(std::size_t count) {
  return (count + Activations::kPad - 1) / Activations::kPad * Activations::kPad;
}

}  // namespace layercast
