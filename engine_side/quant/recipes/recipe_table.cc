#include "engine_side/quant/recipes/recipe_table.h"

#include <array>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/quant/scales.h"
#include "layercast/error.h"

namespace layercast {

// The kernels, each in the file of engine_side/quant/cpu that is named after its recipe.
CpuKernel CpuCopy, CpuFp8PerTensor, CpuFp8PerChannel, CpuFp8PerBlock, CpuMxfp8, CpuMxfp4, CpuNvfp4, CpuInt8PerChannel;

std::unique_ptr<const Recipe> MakeNone(const RecipeRow& row, const RecipeOptions& options);  // none.cc

namespace {

// A new recipe is a row here, with its kernel's name above, and one in engine_side/quant/cuda/cuda_recipes.cc.
constexpr std::array kRecipes = {
    // The weight as it is, copied.
    RecipeRow{.name = "none", .kernel = CpuCopy, .make = MakeNone},
    // One scale, that of the whole fused weight over all ranks.
    //   s = amax / 448; q = cvt(clamp(w * (1/s), -448, 448)); a zero tensor is q = 0, s = 0
    RecipeRow{.name = "fp8_per_tensor",
              .kernel = CpuFp8PerTensor,
              .whole_scale = [](float amax) { return IsZeroTensor(amax) ? 0.0F : TensorScale(amax); }},
    // One scale for each output row, over the columns of all ranks.
    //   s = max(amax_row / 448, 1 / (448 * 512)); q = cvt(clamp(w / s, -448, 448))
    RecipeRow{.name = "fp8_per_channel", .kernel = CpuFp8PerChannel, .format = {.block_rows = 1}},
    // One scale for each 128 x 128 block of this rank's weight, padded with zeros to whole blocks.
    //   s = max(amax_block, 1e-4) / 448, rounded up to a power of two if asked for; q = cvt(w * (1/s))
    RecipeRow{.name = "fp8_per_block",
              .kernel = CpuFp8PerBlock,
              .format = {.block_rows = kFp8Block, .block_cols = kFp8Block},
              .scales = kScalesOfBlocks,
              .takes_power_of_two = true},
    // OCP microscaling: one power of two for each 32 columns of a row, the smallest that is at least amax_block / 448.
    //   q = cvt(w / s); s is stored as its exponent's byte (E8M0)
    RecipeRow{.name = "mxfp8",
              .kernel = CpuMxfp8,
              .format = {.scales = DType::kF8E8M0, .block_rows = 1, .block_cols = kMxBlock}},
    // The same, with the smallest power of two that is at least amax_block / 6.
    //   q = cvt_e2m1(w / s); s is stored as its exponent's byte (E8M0)
    //
    // Two values share a byte, the even column's in the low half. They are stored as u8 [rows, cols / 2] and not as F4
    // [rows, cols], because engines and checkpoints hold such weights as tensors of bytes, and so do captured buffers.
    RecipeRow{.name = "mxfp4",
              .kernel = CpuMxfp4,
              .format = {.elements = DType::kF4, .scales = DType::kF8E8M0, .block_rows = 1, .block_cols = kMxBlock}},
    // Two levels of scales. g = 448 * 6 / amax, with the amax of the whole fused weight over all ranks. For each 16
    // columns of a row, sf = cvt_e4m3(g * (amax_block / 6)) and q = cvt_e2m1(w * (g / sf)). sf and 1/g are stored, and
    // values as in mxfp4.
    RecipeRow{.name = "nvfp4",
              .kernel = CpuNvfp4,
              .format = {.elements = DType::kF4,
                         .scales = DType::kF8E4M3,
                         .block_rows = 1,
                         .block_cols = kNvfp4Block,
                         .has_global_scale = true},
              .whole_scale = [](float amax) { return IsZeroNvfp4(amax) ? 0.0F : 1.0F / Nvfp4GlobalFactor(amax); }},
    // One scale for each output row, over the columns of all ranks.
    //   s = amax_row / 127; q = clamp(rint(w / s), -127, 127), ties to even; a row of s = 0 is q = 0
    RecipeRow{
        .name = "int8_per_channel", .kernel = CpuInt8PerChannel, .format = {.elements = DType::kI8, .block_rows = 1}},
};

}  // namespace

std::span<const RecipeRow> RecipeRows() { return kRecipes; }

std::unique_ptr<const Recipe> MakeRecipe(std::string_view name, const RecipeOptions& options) {
  std::string known;
  for (const RecipeRow& row : kRecipes) {
    if (row.name == name) return row.make(row, options);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown quantization '" + std::string(name) + "'; known: " + known);
}

std::vector<std::string> KnownRecipes() {
  std::vector<std::string> names;
  names.reserve(kRecipes.size());
  for (const RecipeRow& row : kRecipes) names.emplace_back(row.name);
  return names;
}

}  // namespace layercast
