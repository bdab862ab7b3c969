// The recipe of each weight of a plan. It is the same for all weights or, under the name "checkpoint", the one that
// makes the form in which config.json says that checkpoints hold the weight. Used by all that lays out or fills kernel
// tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/quant/recipe.h"

namespace layercast {

// Immutable value, thread-safe; copies share the recipes.
class LayerRecipes {
 public:
  static constexpr std::string_view kAsCheckpoint = "checkpoint";
  // The recipe, under "checkpoint", of weights that have no form, or one that no recipe makes: they are served in full
  // precision.
  static constexpr std::string_view kOtherwise = "none";

  // `name` is kAsCheckpoint or the name of a recipe. Throws kInvalidArgument, listing the recipes, for any other.
  explicit LayerRecipes(std::string_view name, const RecipeOptions& options = {});
  // Uses one recipe for all weights. It must outlive this.
  LayerRecipes(const Recipe& recipe) : one_(&recipe) {}  // NOLINT(google-explicit-constructor): it is one

  static std::vector<std::string> KnownNames();  // the recipes' names, and kAsCheckpoint

  std::string_view name() const { return one_ != nullptr ? one_->name() : kAsCheckpoint; }
  // The recipe of a weight, whether the weight comes quantized already or not.
  const Recipe& Of(const PlannedParameter& weight) const;
  // The largest row_granularity of the plan's weights, at least 1.
  std::int64_t RowMultiple(const LoadPlan& plan) const;

 private:
  const Recipe& Owned(std::string_view name, bool power_of_two_scales) const;

  std::shared_ptr<const std::vector<std::unique_ptr<const Recipe>>> owned_;  // the other owners are copies
  const Recipe* one_ = nullptr;                                              // null if each weight has its own
};

// The name of the recipe of a weight, in an engine whose quantization is called `engine`. `form` is the form in which
// checkpoints hold the weight, and null if that is full precision.
std::string_view RecipeOf(const QuantizedForm* form, std::string_view engine);

}  // namespace layercast
