// The recipe of each weight of a plan: one for all of them, or, under "checkpoint", that of the form in which
// config.json says that checkpoints hold the weight. Used by all that lays out or fills kernel tensors.
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
  // Of weights whose form no recipe makes, and of those that have none: they are served in full precision.
  static constexpr std::string_view kOtherwise = "none";

  // `name`: kAsCheckpoint, or of a recipe. Throws kInvalidArgument listing the recipes.
  explicit LayerRecipes(std::string_view name, const RecipeOptions& options = {});
  // The one recipe, which outlives this.
  LayerRecipes(const Recipe& recipe) : one_(&recipe) {}  // NOLINT(google-explicit-constructor): it is one

  static std::vector<std::string> KnownNames();  // of recipes, and kAsCheckpoint

  std::string_view name() const { return one_ != nullptr ? one_->name() : kAsCheckpoint; }
  // Of a weight, whether it comes quantized already or not.
  const Recipe& Of(const PlannedParameter& weight) const;
  // The largest row_granularity of the plan's weights, at least 1.
  std::int64_t RowMultiple(const LoadPlan& plan) const;

 private:
  const Recipe& Owned(std::string_view name, bool power_of_two_scales) const;

  std::shared_ptr<const std::vector<std::unique_ptr<const Recipe>>> owned_;  // the other owners are copies
  const Recipe* one_ = nullptr;                                              // null: each its own
};

// The name of the recipe of a weight that checkpoints hold in `form`, null: in full precision, in an engine whose
// quantization is called `engine`.
std::string_view RecipeOf(const QuantizedForm* form, std::string_view engine);

}  // namespace layercast
