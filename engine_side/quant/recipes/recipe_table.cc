#include "engine_side/quant/recipes/recipe_table.h"

#include <array>

#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"

namespace layercast {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<const Recipe> (*make)(const RecipeOptions& options);
};

// A new recipe is a line here, its factory's declaration in recipe_parts.h, and its file.
constexpr std::array kRecipes = {
    Entry{"none", [](const RecipeOptions&) { return MakeNone(); }},
    Entry{"fp8_per_tensor", [](const RecipeOptions&) { return MakeFp8PerTensor(); }},
    Entry{"fp8_per_channel", [](const RecipeOptions&) { return MakeFp8PerChannel(); }},
    Entry{"fp8_per_block", [](const RecipeOptions& o) { return MakeFp8PerBlock(o.power_of_two_scales); }},
    Entry{"mxfp8", [](const RecipeOptions&) { return MakeMxfp8(); }},
    Entry{"mxfp4", [](const RecipeOptions&) { return MakeMxfp4(); }},
    Entry{"nvfp4", [](const RecipeOptions&) { return MakeNvfp4(); }},
    Entry{"int8_per_channel", [](const RecipeOptions&) { return MakeInt8PerChannel(); }},
};

}  // namespace

std::unique_ptr<const Recipe> MakeRecipe(std::string_view name, const RecipeOptions& options) {
  std::string known;
  for (const Entry& entry : kRecipes) {
    if (entry.name == name) return entry.make(options);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown quantization '" + std::string(name) + "'; known: " + known);
}

std::vector<std::string> KnownRecipes() {
  std::vector<std::string> names;
  names.reserve(kRecipes.size());
  for (const Entry& entry : kRecipes) names.emplace_back(entry.name);
  return names;
}

}  // namespace layercast
