#include "layercast/tensor.h"

#include <gtest/gtest.h>

#include <limits>

#include "layercast/error.h"
#include "layercast/weights_iterator.h"

namespace layercast {
namespace {

TEST(Shape, CountsElementsWithoutOverflow) {
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({2, 3}), 6);
  EXPECT_EQ(NumElements({1LL << 40, 0}), 0);
  EXPECT_THROW(NumElements({1LL << 40, 1LL << 40}), Error);
  EXPECT_THROW(NumElements({-1}), Error);
  EXPECT_THROW(NumBytes(DType::kF32, {std::numeric_limits<std::int64_t>::max()}), Error);
}

TEST(Shape, SubByteElementsMustFillWholeBytes) {
  EXPECT_EQ(NumBytes(DType::kF4, {3, 2}), 3);
  EXPECT_THROW(NumBytes(DType::kF4, {3}), Error);
}

TEST(WeightsIterator, StaysAtItsEnd) {
  const auto iterator = MakeWeightsIterator(std::vector<NamedTensor>{{.name = "a", .tensor = {}, .owner = nullptr}});
  EXPECT_EQ(iterator->Next()->name, "a");
  EXPECT_FALSE(iterator->Next().has_value());
  EXPECT_FALSE(iterator->Next().has_value());
}

}  // namespace
}  // namespace layercast
