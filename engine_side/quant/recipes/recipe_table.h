// The recipes of this build, by the names that users give them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "engine_side/quant/recipes/recipe_row.h"

namespace layercast {

// Makes one of KnownRecipes(). Throws kInvalidArgument, listing them, for any other name.
std::unique_ptr<const Recipe> MakeRecipe(std::string_view name, const RecipeOptions& options = {});
std::vector<std::string> KnownRecipes();
std::span<const RecipeRow> RecipeRows();

}  // namespace layercast
