#include "src/checkpoint/natural_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace layercast {
namespace {

TEST(NaturalOrder, NumbersCompareAsNumbers) {
  const std::vector<std::string> expected = {
      "", "a", "a-1", "a-2", "a-10", "a-10b", "a-010c", "a-011", "a-18446744073709551616", "a-b", "b1", "b01"};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < expected.size(); ++j) {
      if (expected[i] == "b1" || expected[j] == "b1") continue;
      EXPECT_EQ(NaturalLess(expected[i], expected[j]), i < j) << expected[i] << " < " << expected[j];
    }
  }
}

TEST(NaturalOrder, NamesThatDifferInLeadingZerosHaveAnOrderToo) {
  EXPECT_NE(NaturalLess("b1", "b01"), NaturalLess("b01", "b1"));
  EXPECT_FALSE(NaturalLess("b1", "b1"));
}

TEST(NaturalOrder, ShardsOfACheckpoint) {
  std::vector<std::string> names = {"model-10.safetensors", "model-9.safetensors", "model-00001-of-00002.safetensors"};
  std::ranges::sort(names, NaturalLess);
  EXPECT_EQ(names, (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-9.safetensors",
                                             "model-10.safetensors"}));
}

}  // namespace
}  // namespace layercast
