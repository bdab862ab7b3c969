#include "engine_side/quant/recipe.h"

#include <array>
#include <cstring>

#include "engine_side/quant/recipe_parts.h"
#include "layercast/error.h"
#include "src/tensor/value_tables.h"

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

float ScaleAt(DType type, const std::byte* scales, std::size_t index) {
  if (type == DType::kF32) {
    float scale = 0.0F;
    std::memcpy(&scale, scales + index * sizeof(scale), sizeof(scale));
    return scale;
  }
  const auto code = std::to_integer<std::uint8_t>(scales[index]);
  return type == DType::kF8E4M3 ? GetValueTables().f8_e4m3[code] : GetValueTables().f8_e8m0[code];
}

}  // namespace

QuantizedWeight Recipe::Read(std::span<const KernelTensorView> tensors) const {
  const CodeFormat form = format();
  const KernelTensorView& codes = tensors[0];
  QuantizedWeight weight{.codes = reinterpret_cast<const std::uint8_t*>(codes.data),
                         .rows = codes.rows,
                         .cols = form.ColsOf(codes.cols),
                         .scales = std::vector<float>(static_cast<std::size_t>(tensors[1].num_elements())),
                         .elements = form.elements};
  weight.block_rows = form.BlockRowsOf(weight.rows);
  weight.block_cols = form.BlockColsOf(weight.cols);
  const float global = form.has_global_scale ? ScaleAt(DType::kF32, tensors[2].data, 0) : 1.0F;
  for (std::size_t i = 0; i < weight.scales.size(); ++i) {
    weight.scales[i] = ScaleAt(form.scales, tensors[1].data, i) * global;
  }
  return weight;
}

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
