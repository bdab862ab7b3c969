#include "engine_side/quant/kernel_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

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
  std::byte* const stacks[] = {values, scales};
  const TensorSpec weight{"w2_weight", DType::kBF16, {3, 4, 6}};
  std::vector<KernelTensorView> views = KernelTensorsOfMatrix(weight, *MakeRecipe("fp8_per_channel"));
  PointAtMatrix(2, stacks, views);
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[0].spec.shape, (Shape{4, 6}));
  EXPECT_EQ(views[0].data, values + 2 * 24);
  EXPECT_EQ(views[1].spec.shape, (Shape{4, 1}));
  EXPECT_EQ(views[1].data, scales + 2 * 4 * 4);
}

TEST(KernelTensors, RefuseAWeightThatIsNoMatrixNorAStackOrIsNotCalledSo) {
  EXPECT_THAT([] { Of("none", "a.weight", {3}); }, ThrowsMessage<Error>(HasSubstr("got [3]")));
  EXPECT_THAT([] { Of("none", "a.weight", {3, 4, 5, 6}); }, ThrowsMessage<Error>(HasSubstr("got [3, 4, 5, 6]")));
  EXPECT_THAT([] { Of("none", "a.kernel", {3, 4}); }, ThrowsMessage<Error>(HasSubstr("got 'a.kernel'")));
}

}  // namespace
}  // namespace layercast
