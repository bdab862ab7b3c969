#include "engine_side/quant/kernel_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Specs = std::vector<TensorSpec>;

Specs Of(const char* recipe, const char* name, Shape shape) {
  return KernelTensorsOf({name, DType::kBF16, std::move(shape)}, *MakeRecipe(recipe));
}

TEST(KernelTensors, ReplaceTheWeightInItsName) {
  EXPECT_EQ(Of("fp8_per_tensor", "a.qkv_proj.weight", {4, 6}),
            (Specs{{"a.qkv_proj.weight", DType::kF8E4M3, {4, 6}}, {"a.qkv_proj.weight_scale", DType::kF32, {1}}}));
  EXPECT_EQ(Of("none", "a.w13_weight", {3, 4, 6}), (Specs{{"a.w13_weight", DType::kBF16, {3, 4, 6}}}));
}

TEST(KernelTensors, OfAStackAreStackedAndOneNumberEachIsAVector) {
  EXPECT_EQ(Of("fp8_per_tensor", "w13_weight", {3, 4, 6}),
            (Specs{{"w13_weight", DType::kF8E4M3, {3, 4, 6}}, {"w13_weight_scale", DType::kF32, {3}}}));
  EXPECT_EQ(Of("fp8_per_channel", "w2_weight", {3, 4, 6})[1], (TensorSpec{"w2_weight_scale", DType::kF32, {3, 4, 1}}));
  EXPECT_EQ(Of("fp8_per_block", "w2_weight", {3, 130, 6})[1],
            (TensorSpec{"w2_weight_scale_inv", DType::kF32, {3, 2, 1}}));
}

TEST(KernelTensors, OfOneMatrixLieBehindThoseOfTheMatricesBeforeIt) {
  std::byte values[3 * 24], scales[3 * 4 * 4];
  const TensorSpec weight{"w2_weight", DType::kBF16, {3, 4, 6}};
  const Specs tensors = KernelTensorsOf(weight, *MakeRecipe("fp8_per_channel"));
  const KernelTensorView codes = OfMatrix(2, weight.shape, tensors[0], values);
  EXPECT_EQ(std::pair(codes.rows, codes.cols), std::pair(4L, 6L));
  EXPECT_EQ(codes.data, values + 2 * 24);
  const KernelTensorView rows = OfMatrix(2, weight.shape, tensors[1], scales);
  EXPECT_EQ(std::pair(rows.rows, rows.cols), std::pair(4L, 1L));
  EXPECT_EQ(rows.data, scales + 2 * 4 * 4);

  const KernelTensorView one = OfMatrix(2, weight.shape, {"w2_weight_scale", DType::kF32, {3}}, scales);
  EXPECT_EQ(std::pair(one.rows, one.cols), std::pair(1L, 1L));
  EXPECT_EQ(one.data, scales + 2 * 4);
  const KernelTensorView matrix = OfMatrix(0, {4, 6}, {"weight", DType::kF8E4M3, {4, 6}}, values);
  EXPECT_EQ(std::pair(matrix.rows, matrix.cols), std::pair(4L, 6L));
  EXPECT_EQ(matrix.data, values);
}

TEST(KernelTensors, RefuseAWeightThatIsNoMatrixNorAStackOrIsNotCalledSo) {
  EXPECT_THAT([] { Of("none", "a.weight", {3}); }, ThrowsMessage<Error>(HasSubstr("got [3]")));
  EXPECT_THAT([] { Of("none", "a.weight", {3, 4, 5, 6}); }, ThrowsMessage<Error>(HasSubstr("got [3, 4, 5, 6]")));
  EXPECT_THAT([] { Of("none", "a.kernel", {3, 4}); }, ThrowsMessage<Error>(HasSubstr("got 'a.kernel'")));
}

}  // namespace
}  // namespace layercast
