// An RMS norm of the forward pass, whose weight is read at its captured address. Used by the decoder and by attention
// blocks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/cpu/kernels/activations.h"
#include "layercast/model/module.h"
#include "layercast/model/norm.h"

namespace layercast {

// Casts `module` to RMSNorm. Throws kUnsupported, naming path and class, if it is something else.
const RMSNorm& AsRmsNorm(const Module& module, const std::string& path);

// Value; the weight's memory is borrowed.
class Norm {
 public:
  // `module` must be an RMSNorm: throws kUnsupported if it is something else.
  Norm(const Module& module, const std::string& path, CapturedWeights& weights);

  // The factors by which a row is multiplied, computed from the weight as it is now.
  std::vector<float> Factors() const;
  // Normalizes `row` in place. `factors` are those of this pass.
  void Apply(std::span<const float> factors, DType dtype, std::span<float> row) const;
  // Normalizes `row` in place by a mean of squares that covers more elements than the row has.
  void Apply(float mean_square, std::span<const float> factors, DType dtype, std::span<float> row) const;
  // Sets `to` to the norm of every row of `from`.
  void Apply(const Activations& from, DType dtype, Activations& to) const;

 private:
  WeightView weight_;
  float epsilon_;
  NormStyle style_;
};

}  // namespace layercast
