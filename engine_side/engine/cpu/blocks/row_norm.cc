#include "engine_side/engine/cpu/blocks/row_norm.h"

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

std::vector<float> FactorsOf(const NormOperand& norm) {
  std::vector<float> factors = ReadVector(norm.weight);
  if (norm.style == NormStyle::kOnePlusWeight) {
    for (float& factor : factors) factor += 1.0F;
  }
  return factors;
}

void Normalize(const NormOperand& norm, std::span<const float> factors, std::span<float> row) {
  RmsNorm(row, factors, static_cast<float>(norm.epsilon), norm.style, norm.dtype, row);
}

void Normalize(const NormOperand& norm, float sum_of_squares, std::span<const float> factors, std::span<float> row) {
  NormalizeBy(sum_of_squares / static_cast<float>(norm.total_size), row, factors, static_cast<float>(norm.epsilon),
              norm.style, norm.dtype, row);
}

void Normalize(const NormOperand& norm, const Activations& from, Activations& to) {
  const std::vector<float> factors = FactorsOf(norm);
  to.Reset(from.rows(), from.cols());
  for (std::size_t i = 0; i < from.rows(); ++i) {
    RmsNorm(from[i], factors, static_cast<float>(norm.epsilon), norm.style, norm.dtype, to[i]);
  }
}

}  // namespace layercast
