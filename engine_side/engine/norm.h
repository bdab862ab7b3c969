// An RMS norm of the forward pass, read at its captured address. Used by the decoder and by attention blocks.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/activations.h"
#include "engine_side/engine/captured_weights.h"
#include "layercast/model/module.h"
#include "layercast/model/norm.h"

namespace layercast {

// Throws kUnsupported, naming path and class, if `module` is something else.
const RMSNorm& AsRmsNorm(const Module& module, const std::string& path);

// Value; the weight's memory is borrowed.
class Norm {
 public:
  // `module`: an RMSNorm. Throws kUnsupported if it is something else.
  Norm(const Module& module, const std::string& path, CapturedWeights& weights);

  // What a row is multiplied by, as the weight is now.
  std::vector<float> Factors() const;
  // In place; `factors`: those of this pass.
  void Apply(std::span<const float> factors, DType dtype, std::span<float> row) const;
  // The same for a mean over more elements than the row's.
  void Apply(float mean_square, std::span<const float> factors, DType dtype, std::span<float> row) const;
  // to := the norm of every row.
  void Apply(const Activations& from, DType dtype, Activations& to) const;

 private:
  WeightView weight_;
  float epsilon_;
  NormStyle style_;
};

}  // namespace layercast
