#include "engine_side/quant/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "tests/engine_side/quant/recipes/hard_weights.h"
#include "tests/engine_side/quant/recipes/quantized.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

using Specs = std::vector<TensorSpec>;

TEST(Recipe, AnUnknownNameListsTheKnownOnes) {
  const std::string message = ErrorOf([] { MakeRecipe("int3"); }, ErrorCode::kInvalidArgument);
  EXPECT_THAT(message, HasSubstr("'int3'"));
  for (const std::string& name : KnownRecipes()) {
    EXPECT_THAT(message, HasSubstr(name));
    EXPECT_EQ(MakeRecipe(name)->name(), name);
  }
}

TEST(Recipe, KernelTensorsHaveTheFieldsNamesAndShapes) {
  EXPECT_EQ(MakeRecipe("none")->KernelTensors(DType::kBF16, 3, 5), (Specs{{"weight", DType::kBF16, {3, 5}}}));
  EXPECT_EQ(MakeRecipe("fp8_per_tensor")->KernelTensors(DType::kBF16, 3, 5),
            (Specs{{"weight", DType::kF8E4M3, {3, 5}}, {"weight_scale", DType::kF32, {1}}}));
  EXPECT_EQ(MakeRecipe("fp8_per_channel")->KernelTensors(DType::kF16, 3, 5),
            (Specs{{"weight", DType::kF8E4M3, {3, 5}}, {"weight_scale", DType::kF32, {3, 1}}}));
  EXPECT_EQ(MakeRecipe("fp8_per_block")->KernelTensors(DType::kF32, 129, 256),
            (Specs{{"weight", DType::kF8E4M3, {129, 256}}, {"weight_scale_inv", DType::kF32, {2, 2}}}));
  EXPECT_EQ(MakeRecipe("mxfp8")->KernelTensors(DType::kBF16, 3, 64),
            (Specs{{"weight", DType::kF8E4M3, {3, 64}}, {"weight_scale", DType::kU8, {3, 2}}}));
  EXPECT_EQ(MakeRecipe("mxfp4")->KernelTensors(DType::kBF16, 3, 64),
            (Specs{{"weight", DType::kU8, {3, 32}}, {"weight_scale", DType::kU8, {3, 2}}}));
  EXPECT_EQ(MakeRecipe("nvfp4")->KernelTensors(DType::kBF16, 3, 64), (Specs{{"weight", DType::kU8, {3, 32}},
                                                                            {"weight_scale", DType::kF8E4M3, {3, 4}},
                                                                            {"weight_scale_2", DType::kF32, {1}}}));
  EXPECT_EQ(MakeRecipe("int8_per_channel")->KernelTensors(DType::kBF16, 3, 5),
            (Specs{{"weight", DType::kI8, {3, 5}}, {"weight_scale", DType::kF32, {3, 1}}}));
}

TEST(Recipe, BlocksOfColumnsMustBeWhole) {
  struct Blocks {
    const char* name;
    std::int64_t cols;
    const char* block;
  };
  for (const Blocks& c : {Blocks{"mxfp8", 80, "blocks of 32, got 80"}, Blocks{"mxfp4", 48, "blocks of 32, got 48"},
                          Blocks{"nvfp4", 40, "blocks of 16, got 40"}}) {
    const auto call = [&] { MakeRecipe(c.name)->KernelTensors(DType::kBF16, 2, c.cols); };
    const std::string message = ErrorOf(call, ErrorCode::kInvalidArgument);
    EXPECT_THAT(message, HasSubstr(c.name));
    EXPECT_THAT(message, HasSubstr(c.block));
  }
}

TEST(Recipe, ASourceThatIsNotFloatingPointIsRefused) {
  for (const std::string& name : KnownRecipes()) {
    if (name == "none") continue;
    const auto call = [&] { MakeRecipe(name)->KernelTensors(DType::kI8, 2, 2); };
    const std::string message = ErrorOf(call, ErrorCode::kInvalidArgument);
    EXPECT_THAT(message, HasSubstr(name));
    EXPECT_THAT(message, HasSubstr("i8"));
  }
}

TEST(Recipe, WhatARankMustBeToldDependsOnWhatItHolds) {
  const auto needs = [](const char* name, ShardAxis axis) { return MakeRecipe(name)->Needs(axis); };
  EXPECT_EQ(needs("fp8_per_tensor", ShardAxis::kNone), AmaxNeed::kTensor);
  EXPECT_EQ(needs("fp8_per_tensor", ShardAxis::kRows), AmaxNeed::kTensor);
  EXPECT_EQ(needs("fp8_per_tensor", ShardAxis::kCols), AmaxNeed::kTensor);
  EXPECT_EQ(needs("fp8_per_channel", ShardAxis::kRows), AmaxNeed::kNone);
  EXPECT_EQ(needs("fp8_per_channel", ShardAxis::kCols), AmaxNeed::kRows);
  EXPECT_EQ(needs("fp8_per_block", ShardAxis::kCols), AmaxNeed::kNone);
  EXPECT_EQ(needs("mxfp8", ShardAxis::kCols), AmaxNeed::kNone);
  EXPECT_EQ(needs("mxfp4", ShardAxis::kRows), AmaxNeed::kNone);
  EXPECT_EQ(needs("nvfp4", ShardAxis::kRows), AmaxNeed::kTensor);
  EXPECT_EQ(needs("int8_per_channel", ShardAxis::kCols), AmaxNeed::kRows);
  EXPECT_EQ(needs("none", ShardAxis::kCols), AmaxNeed::kNone);
}

TEST(Recipe, NoneCopiesStridedRowsOfAnyType) {
  WorkerPool pool(2);
  const auto recipe = MakeRecipe("none");
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const std::int64_t gap : {0, 12}) {
        const Weight weight = MakeWeight("bits", dtype, 7, 233, gap);
        const std::int64_t row_bytes = weight.row_stride - gap;
        const Quantized got = QuantizeWhole(*recipe, weight.view(), {}, pool);
        for (std::int64_t r = 0; r < 7; ++r) {
          const auto* copied = got.tensors[0].data() + r * row_bytes;
          EXPECT_EQ(std::memcmp(copied, weight.view().row(r), static_cast<std::size_t>(row_bytes)), 0);
        }
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
  const std::vector<std::byte> ones(24, std::byte{0xff});  // int8 has no NaN
  EXPECT_EQ(QuantizeWhole(*recipe, {DType::kI8, ones.data(), 3, 8, 8}, {}, pool).tensors[0], ones);
}

TEST(Recipe, NanAndInfinityAreRefusedWithTheirPlace) {
  struct Bad {
    DType dtype;
    std::uint32_t bits;
    const char* name;
  };
  const Bad kinds[] = {{DType::kBF16, 0x7fc0, "NaN"},
                       {DType::kBF16, 0xff80, "-infinity"},
                       {DType::kF16, 0x7c00, " infinity"},
                       {DType::kF32, 0xffffffff, "NaN"}};
  WorkerPool pool(2);
  for (const std::string& name : KnownRecipes()) {
    for (const Bad& bad : kinds) {
      Weight weight = MakeWeight("random", bad.dtype, 300, 224, 8);
      weight.SetBits(257, 223, bad.bits);
      weight.SetBits(299, 0, bad.bits);
      const std::vector<float> rows(300, 1.0F);
      for (const AmaxInput& amax : {AmaxInput{}, AmaxInput{.tensor = 1.0F, .rows = rows}}) {
        const auto recipe = MakeRecipe(name);
        const auto call = [&] { QuantizeWhole(*recipe, weight.view(), amax, pool); };
        const std::string message = ErrorOf(call, ErrorCode::kCorrupt);
        EXPECT_THAT(message, HasSubstr(bad.name)) << name;
        EXPECT_THAT(message, HasSubstr("row 257, column 223")) << name;
      }
    }
  }
}

TEST(Recipe, ThePlaceOfANanInAPieceIsItsPlaceInTheWeight) {
  Weight weight = MakeWeight("random", DType::kBF16, 256, 64);
  weight.SetBits(200, 3, 0x7fc0);
  WorkerPool pool(1);
  const std::vector<float> rows(256, 1.0F);
  for (const std::string& name : KnownRecipes()) {
    const auto recipe = MakeRecipe(name);
    Quantized out(*recipe, DType::kBF16, 256, 64);
    const auto call = [&] {
      recipe->Quantize(weight.Part(128, 128, 0, 64), 128, {.tensor = 1.0F, .rows = rows}, out.views(), pool);
    };
    EXPECT_THAT(ErrorOf(call, ErrorCode::kCorrupt), HasSubstr("row 200, column 3")) << name;
  }
}

TEST(Recipe, AGivenAmaxThatIsTooSmallIsRefused) {
  Weight weight = MakeWeight("constant", DType::kBF16, 4, 80);
  weight.SetBits(2, 79, 0xc040);  // -3.0
  WorkerPool pool(1);
  for (const char* name : {"fp8_per_tensor", "nvfp4"}) {
    const auto recipe = MakeRecipe(name);
    for (const float amax : {0.0F, 1e-38F, 2.98F}) {
      const auto call = [&] { QuantizeWhole(*recipe, weight.view(), {.tensor = amax, .rows = {}}, pool); };
      EXPECT_THAT(ErrorOf(call, ErrorCode::kCorrupt), HasSubstr("magnitude 3, more than")) << name;
    }
  }
  for (const char* name : {"fp8_per_channel", "int8_per_channel"}) {
    const auto recipe = MakeRecipe(name);
    const std::vector<float> rows = {1.0F, 1.0F, 2.5F, 1.0F};
    const auto call = [&] { QuantizeWhole(*recipe, weight.view(), {.tensor = -1.0F, .rows = rows}, pool); };
    EXPECT_THAT(ErrorOf(call, ErrorCode::kCorrupt), HasSubstr("magnitude 3 in row 2, more than the 2.5")) << name;
  }
}

TEST(Recipe, AGivenAmaxThatIsNoNumberIsRefused) {
  const Weight weight = MakeWeight("constant", DType::kBF16, 2, 80);
  WorkerPool pool(1);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> rows = {1.0F, bad};
    for (const char* name : {"fp8_per_tensor", "nvfp4", "fp8_per_channel", "int8_per_channel"}) {
      EXPECT_THROW(QuantizeWhole(*MakeRecipe(name), weight.view(), {.tensor = bad, .rows = rows}, pool), Error) << name;
    }
  }
}

TEST(Recipe, APieceForAScaleOfTheWholeWeightNeedsItsAmax) {
  const Weight weight = MakeWeight("random", DType::kBF16, 4, 64);
  WorkerPool pool(1);
  for (const char* name : {"fp8_per_tensor", "nvfp4"}) {
    const auto recipe = MakeRecipe(name);
    Quantized out(*recipe, DType::kBF16, 4, 64);
    const auto call = [&] { recipe->Quantize(weight.Part(0, 2, 0, 64), 0, {}, out.views(), pool); };
    EXPECT_THAT(ErrorOf(call, ErrorCode::kInvalidArgument), HasSubstr("2 of 4 rows")) << name;
  }
}

}  // namespace
}  // namespace layercast
