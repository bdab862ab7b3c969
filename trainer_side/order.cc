#include "trainer_side/order.h"

#include <algorithm>
#include <random>
#include <utility>

namespace layercast {

Weights Shuffled(Weights weights, std::uint64_t seed) {
  std::vector<std::string> names;
  for (const TensorSpec& spec : weights.specs) names.push_back(spec.name);
  // Not std::shuffle, because its order differs between standard libraries.
  std::mt19937_64 random(seed);
  for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random() % i]);
  weights.walk = [walk = std::move(weights.walk), names = std::move(names)](std::span<const std::string> /*order*/) {
    return walk(names);
  };
  return weights;
}

}  // namespace layercast
