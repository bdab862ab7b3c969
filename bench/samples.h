// Inputs of kernel benchmarks, and how their measurements are evaluated.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace layercast::bench {

// The bf16 bits of typical weights: normally distributed, with standard deviation 0.02. The same ones each time.
inline std::vector<std::uint16_t> NormalBf16(std::size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<std::uint16_t> weights(count);
  for (std::uint16_t& weight : weights) {
    weight = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  }
  return weights;
}

// The median; 0 if there are no values.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace layercast::bench
