// What makes a recipe: a row of the table of recipes (recipe_table.cc). Used by the table, and by what makes recipes.
#pragma once

#include <memory>
#include <string_view>

#include "engine_side/quant/cpu/cpu_kernel.h"
#include "engine_side/quant/recipe.h"

namespace layercast {

struct RecipeRow;

// A recipe of codes and scales: all but its arithmetic follows from the format. The row must outlive it.
std::unique_ptr<const Recipe> MakeOfFormat(const RecipeRow& row, const RecipeOptions& options);

// Immutable value.
struct RecipeRow {
  std::string_view name;
  CpuKernel* kernel;
  CodeFormat format{};                       // not of `none`
  float (*whole_scale)(float) = nullptr;     // the scale that is made from the amax of the whole weight; 0: all is 0
  std::string_view scales = "weight_scale";  // the name of the scales
  bool takes_power_of_two = false;           // RecipeOptions::power_of_two_scales
  std::unique_ptr<const Recipe> (*make)(const RecipeRow& row, const RecipeOptions& options) = MakeOfFormat;

  // The tensors that hold the codes and the scales of a weight [rows, cols].
  TensorSpec Codes(std::int64_t rows, std::int64_t cols) const;
  TensorSpec Scales(std::int64_t rows, std::int64_t cols) const;
};

}  // namespace layercast
