#include "engine_side/reload/layout/layer_recipes.h"

#include <algorithm>
#include <utility>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/model/quantized_form.h"
#include "src/base/check.h"

namespace layercast {

std::string_view RecipeOf(const QuantizedForm* form, std::string_view engine) {
  if (engine != LayerRecipes::kAsCheckpoint) return engine;
  return form == nullptr || form->recipe().empty() ? LayerRecipes::kOtherwise : form->recipe();
}

LayerRecipes::LayerRecipes(std::string_view name, const RecipeOptions& options) {
  std::vector<std::unique_ptr<const Recipe>> owned;
  if (name == kAsCheckpoint) {
    for (const std::string& known : KnownRecipes()) {
      owned.push_back(MakeRecipe(known, options));
      if (!options.power_of_two_scales) owned.push_back(MakeRecipe(known, {.power_of_two_scales = true}));
    }
  } else {
    owned.push_back(MakeRecipe(name, options));
    one_ = owned.front().get();
  }
  owned_ = std::make_shared<const std::vector<std::unique_ptr<const Recipe>>>(std::move(owned));
}

std::vector<std::string> LayerRecipes::KnownNames() {
  std::vector<std::string> names = KnownRecipes();
  names.emplace_back(kAsCheckpoint);
  return names;
}

const Recipe& LayerRecipes::Of(const PlannedParameter& weight) const {
  if (one_ != nullptr) return *one_;
  return Owned(RecipeOf(weight.form, kAsCheckpoint), weight.form != nullptr && weight.form->power_of_two);
}

// Only the recipe of blocks distinguishes scales that are powers of two. Of any other recipe, the first one with this
// name will do.
const Recipe& LayerRecipes::Owned(std::string_view name, bool power_of_two_scales) const {
  const auto called = [&](const auto& recipe) { return recipe->name() == name; };
  const auto fits = [&](const auto& recipe) {
    return called(recipe) && (!power_of_two_scales || recipe->options().power_of_two_scales);
  };
  auto found = std::ranges::find_if(*owned_, fits);
  if (found == owned_->end()) found = std::ranges::find_if(*owned_, called);
  LAYERCAST_CHECK(found != owned_->end());
  return **found;
}

std::int64_t LayerRecipes::RowMultiple(const LoadPlan& plan) const {
  std::int64_t multiple = 1;
  for (const PlannedParameter& parameter : plan.parameters()) {
    if (parameter.quantize) multiple = std::max(multiple, Of(parameter).row_granularity());
  }
  return multiple;
}

}  // namespace layercast
