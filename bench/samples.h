// Inputs of kernel benchmarks, and how their measurements are evaluated.
#pragma once

#include <time.h>

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

inline double SecondsBy(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
// What the processors have worked for this process, all its threads, or for this thread. If other programs keep the
// cores busy, elapsed time would say more about them.
inline double ProcessorSeconds() { return SecondsBy(CLOCK_PROCESS_CPUTIME_ID); }
inline double ThreadSeconds() { return SecondsBy(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace layercast::bench
