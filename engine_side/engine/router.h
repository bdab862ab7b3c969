// Which experts a token goes to, and how much each of them counts. Used by the block of a mixture of experts.
// Torch-free.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/block.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

struct RoutedToken {
  std::size_t row = 0;
  float weight = 0;
};
using RoutedTokens = std::vector<std::vector<RoutedToken>>;  // by expert, of all ranks; rows in order

// A token's choice among as many experts as there are scores, which are not rounded. `bias`: one for each expert, that
// changes what is picked and not what it counts; empty: none. Equal ones: the first.
struct Choice {
  std::size_t expert = 0;
  float weight = 0;
};
std::vector<Choice> ChooseExperts(const Routing& routing, std::span<const float> logits, std::span<const float> bias);

// Resource; one thread only.
class Router {
 public:
  Router(const MixtureOfExperts& moe, const std::string& path, const BlockContext& context);
  // The same on every rank.
  RoutedTokens Route(const Activations& in);

 private:
  Routing routing_;
  DType dtype_;
  LinearWeights linear_;
  std::optional<WeightView> correction_bias_;
  Activations logits_;  // scratch
};

}  // namespace layercast
