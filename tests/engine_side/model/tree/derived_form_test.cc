// What a layer may say that derives from its parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "layercast/model/module.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

using DerivedView = DerivedTensor::StridedView;

const TensorSpec kDerivedFromMatrix{"weight", DType::kBF16, {6, 4}};
const TensorSpec kDerivedFromVector{"bias", DType::kBF16, {6}};

struct DerivingLayer final : Module {
  explicit DerivingLayer(DerivedTensor derived) : Module("Layer") {
    AddParameter({.spec = kDerivedFromMatrix, .storage = {}});
    AddParameter({.spec = kDerivedFromVector, .storage = {}});
    AddParameter({.spec = {"ids", DType::kI32, {6}}, .storage = {}});
    AddDerived(std::move(derived));
  }
};

TEST(DerivedForm, MayBeAnyViewWithinItsSource) {
  const std::vector<std::pair<Shape, DerivedView>> views = {{{4, 6}, {{1, 4}, 0}},       {{24}, {{1}, 0}},
                                                            {{6, 4, 6}, {{4, 1, 0}, 0}}, {{2}, {{4}, 19}},
                                                            {{0, 9}, {{100, 100}, 0}},   {{}, {{}, 23}}};
  for (const auto& [shape, view] : views) {
    EXPECT_EQ(DerivingLayer({{"view", DType::kBF16, shape}, {kDerivedFromMatrix}, view}).derived().size(), 1U)
        << ToString(shape);
  }
}

TEST(DerivedForm, IsRefusedWhereItCannotBeMade) {
  const DerivedTensor::Compute nothing;
  const TensorSpec ids{"ids", DType::kI32, {6}};
  const std::vector<std::pair<DerivedTensor, std::string>> wrong = {
      {{{"v", DType::kF32, {4, 6}}, {kDerivedFromMatrix}, DerivedView{{1, 4}, 0}}, "expected the source's dtype, bf16"},
      {{{"v", DType::kBF16, {1, 1, 1, 1, 1, 1}}, {kDerivedFromMatrix}, DerivedView{{1, 1, 1, 1, 1, 1}, 0}},
       "expected at most five dimensions"},
      {{{"v", DType::kBF16, {4, 6}}, {kDerivedFromMatrix}, DerivedView{{1}, 0}}, "expected 2 strides, got 1"},
      {{{"v", DType::kBF16, {4, 6}}, {kDerivedFromMatrix}, DerivedView{{1, -4}, 23}},
       "expected an offset and strides that are not neg"},
      {{{"v", DType::kBF16, {4, 6}}, {kDerivedFromMatrix}, DerivedView{{1, 4}, 1}},
       "within the source's 24, got number 24"},
      {{{"v", DType::kBF16, {4, 6}}, {kDerivedFromMatrix, kDerivedFromVector}, DerivedView{{1, 4}, 0}},
       "expected one source, got 2"},
      {{{"v", DType::kF32, {4}}, {kDerivedFromVector}, DerivedTensor::NegatedExponential{}}, "expected [6] f32"},
      {{{"v", DType::kBF16, {6}}, {kDerivedFromVector}, DerivedTensor::NegatedExponential{}}, "expected [6] f32"},
      {{{"v", DType::kF32, {6}}, {ids}, DerivedTensor::NegatedExponential{}}, "expected a source of f16, bf16, f32"},
      {{{"v", DType::kF32, {6}}, {kDerivedFromVector}, nothing}, "expected a function, got null"},
  };
  for (const auto& [derived, words] : wrong) {
    EXPECT_THAT(testing::ErrorOf([&derived = derived] { DerivingLayer layer(derived); }), HasSubstr(words));
  }
  EXPECT_THAT(testing::ErrorOf([] {
                DerivingLayer layer({{"v", DType::kBF16, {4, 6}}, {kDerivedFromMatrix}, DerivedView{{1, 4}, 1}});
              }),
              HasSubstr("Layer: 'v' ([4, 6] bf16), which derives from parameters: expected elements within"));
}

}  // namespace
}  // namespace layercast
