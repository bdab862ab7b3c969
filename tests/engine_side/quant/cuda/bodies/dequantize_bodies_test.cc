// What the CUDA kernel that dequantizes does, run on the host, against the CPU's Dequantize.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine_side/quant/cuda/bodies/cuda_codes.h"
#include "engine_side/quant/cuda/bodies/dequantize_body.cuh"
#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "tests/engine_side/quant/cuda/bodies/cuda_cases.h"
#include "tests/engine_side/quant/cuda/bodies/host_runner.h"

namespace layercast {
namespace {

static_assert(cuda::kDTypeF4 == DType::kF4 && cuda::kDTypeI8 == DType::kI8);
static_assert(cuda::kDTypeF8E4M3 == DType::kF8E4M3 && cuda::kDTypeF8E8M0 == DType::kF8E8M0);

void ExpectTheCpusBytes(const RecipeCase& c, Quantized& made, DType dtype, std::int64_t rows, std::int64_t cols) {
  const auto recipe = MakeRecipe(c.name, c.options);
  WorkerPool pool(1);
  std::vector<std::byte> expected(static_cast<std::size_t>(NumBytes(dtype, {rows, cols})));
  std::vector<std::byte> got = expected;
  const auto views = made.views();
  Dequantize(recipe->Read(views), dtype, expected.data(), pool);
  cuda::RunDequantize(ElementsOnHost(), CodesOf(recipe->format(), views), dtype, got.data());
  EXPECT_TRUE(got == expected) << c.name << ' ' << Name(dtype) << ' ' << rows << 'x' << cols;
}

TEST(DequantizeBodies, GiveTheBytesOfTheCpuForEveryRecipe) {
  for (const RecipeCase& c : kRecipeCases) {
    if (c.name == kCopyCase.name) continue;
    const auto recipe = MakeRecipe(c.name, c.options);
    for (const DType dtype : kWeightTypes) {
      for (const std::int64_t rows : {1, 131}) {
        for (const std::int64_t cols : {c.Cols(1), c.Cols(300)}) {
          const Weight weight = MakeWeight("mixed", dtype, rows, cols);
          Quantized made = ByReference(c, *recipe, weight.view(), {});
          ExpectTheCpusBytes(c, made, dtype, rows, cols);
        }
      }
    }
  }
}

// Also those that no recipe makes; as bf16, whose NaN is one.
TEST(DequantizeBodies, GiveThemForEveryCodeAndEveryScale) {
  std::mt19937 random(3);
  for (const RecipeCase& c : kRecipeCases) {
    if (c.name == kCopyCase.name) continue;
    const auto recipe = MakeRecipe(c.name, c.options);
    Quantized made(*recipe, DType::kBF16, 256, 512);
    for (std::byte& code : made.tensors[0]) code = static_cast<std::byte>(random());
    for (std::size_t t = 1; t < made.tensors.size(); ++t) {
      if (made.specs[t].dtype == DType::kF32) {
        for (std::size_t i = 0; i < made.tensors[t].size(); i += 4) {
          const float scale =
              std::ldexp(1.0F + static_cast<float>(random() >> 9) * 0x1p-23F, -static_cast<int>(i % 150));
          std::memcpy(&made.tensors[t][i], &scale, sizeof(scale));
        }
      } else {
        for (std::size_t i = 0; i < made.tensors[t].size(); ++i) made.tensors[t][i] = static_cast<std::byte>(i);
      }
    }
    ExpectTheCpusBytes(c, made, DType::kBF16, 256, 512);
  }
}

}  // namespace
}  // namespace layercast
