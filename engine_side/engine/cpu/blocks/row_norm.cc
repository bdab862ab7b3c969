#include "engine_side/engine/cpu/blocks/row_norm.h"

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "layercast/error.h"

namespace layercast {

const RMSNorm& AsRmsNorm(const Module& module, const std::string& path) {
  if (const auto* norm = dynamic_cast<const RMSNorm*>(&module)) return *norm;
  throw Error(ErrorCode::kUnsupported,
              "the built-in engine cannot compute " + path + " (" + module.class_name() + ") as a norm");
}

Norm::Norm(const Module& module, const std::string& path, CapturedWeights& weights)
    : weight_(weights.Find(AsRmsNorm(module, path), path)),
      epsilon_(static_cast<float>(AsRmsNorm(module, path).epsilon())),
      style_(AsRmsNorm(module, path).style()) {}

std::vector<float> Norm::Factors() const {
  std::vector<float> factors = ReadVector(weight_);
  if (style_ == NormStyle::kOnePlusWeight) {
    for (float& factor : factors) factor += 1.0F;
  }
  return factors;
}

void Norm::Apply(std::span<const float> factors, DType dtype, std::span<float> row) const {
  RmsNorm(row, factors, epsilon_, style_, dtype, row);
}

void Norm::Apply(float mean_square, std::span<const float> factors, DType dtype, std::span<float> row) const {
  NormalizeBy(mean_square, row, factors, epsilon_, style_, dtype, row);
}

void Norm::Apply(const Activations& from, DType dtype, Activations& to) const {
  const std::vector<float> factors = Factors();
  to.Reset(from.rows(), from.cols());
  for (std::size_t i = 0; i < from.rows(); ++i) RmsNorm(from[i], factors, epsilon_, style_, dtype, to[i]);
}

}  // namespace layercast
