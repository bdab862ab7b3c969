// Which experts a token goes to, and how much each of them counts. Used by the block of a mixture of experts.
// Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/blocks/low_rank.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

struct RoutedToken {
  std::size_t row = 0;
  float weight = 0;
};
using RoutedTokens = std::vector<std::vector<RoutedToken>>;  // indexed by expert, over all ranks; rows in order

// One of the experts that a token picks, and its weight. Value.
struct Choice {
  std::size_t expert = 0;
  float weight = 0;
};
// A token's choice among as many experts as there are logits, the preferred ones first; of equal ones the first comes
// first. Weights are not rounded. `bias` holds a number for each expert, or nothing. It is added to the scores when
// experts are picked, but does not enter their weights.
std::vector<Choice> ChooseExperts(const Routing& routing, std::span<const float> logits, std::span<const float> bias);

// Resource; one thread only.
class Router {
 public:
  explicit Router(RouterDescription description) : description_(std::move(description)) {}
  // Routes every row of `in`. All ranks get the same result.
  RoutedTokens Route(const SlotGroups& groups, const Activations& in);

 private:
  const RouterDescription description_;
  Activations logits_;  // scratch
};

}  // namespace layercast
