#include "src/tensor/parts/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace layercast {
namespace {

TEST(Coverage, AcceptsSlicesThatTile) {
  const Shape shape{10, 4};
  const std::vector<Box> boxes = {Box::Slice(shape, 0, 6, 4), Box::Slice(shape, 0, 0, 6)};
  EXPECT_TRUE(Cover(boxes).Tiles(shape));
}

TEST(Coverage, SeesAGapAndAnOverlapThatAddUp) {
  // As many elements as the tensor has, and yet not the tensor.
  const Shape shape{10, 4};
  const std::vector<Box> boxes = {Box::Slice(shape, 0, 0, 6), Box::Slice(shape, 0, 4, 4)};
  const Coverage coverage = Cover(boxes);
  EXPECT_EQ(coverage.elements, 40);
  EXPECT_FALSE(coverage.Tiles(shape));
  EXPECT_THAT(coverage.overlaps, ::testing::ElementsAre(std::pair<std::size_t, std::size_t>{0, 1}));
}

TEST(Coverage, SeesARepeatedScalar) {
  EXPECT_TRUE(Cover(std::vector<Box>{Box::Whole({})}).Tiles({}));
  EXPECT_FALSE(Cover(std::vector<Box>{Box::Whole({}), Box::Whole({})}).Tiles({}));
  EXPECT_FALSE(Cover({}).Tiles({}));
  EXPECT_TRUE(Cover({}).Tiles({0, 4}));
}

// Cuts the tensor into boxes at random.
std::vector<Box> Cut(const Shape& shape, std::mt19937& random) {
  std::vector<Box> boxes = {Box::Whole(shape)};
  for (int cut = 0; cut < 6; ++cut) {
    Box& box = boxes[random() % boxes.size()];
    const std::size_t axis = random() % box.rank;
    if (box.extent[axis] < 2) continue;
    const std::int64_t first = 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(box.extent[axis] - 1));
    Box rest = box;
    rest.begin[axis] += first;
    rest.extent[axis] -= first;
    box.extent[axis] = first;
    boxes.push_back(rest);
  }
  return boxes;
}

// The slow way: how often each element is in a box.
bool TilesByCounting(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<int> count(static_cast<std::size_t>(NumElements(shape)));
  for (const Box& box : boxes) {
    for (std::int64_t i = 0; i < box.extent[0]; ++i) {
      for (std::int64_t j = 0; j < box.extent[1]; ++j) {
        for (std::int64_t k = 0; k < box.extent[2]; ++k) {
          const std::int64_t row = (box.begin[0] + i) * shape[1] + box.begin[1] + j;
          ++count[static_cast<std::size_t>(row * shape[2] + box.begin[2] + k)];
        }
      }
    }
  }
  return std::ranges::all_of(count, [](int n) { return n == 1; });
}

TEST(Coverage, AgreesWithCountingEveryElement) {
  std::mt19937 random(11);
  int tiling = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const Shape shape{1 + static_cast<std::int64_t>(random() % 4), 1 + static_cast<std::int64_t>(random() % 5),
                      1 + static_cast<std::int64_t>(random() % 6)};
    std::vector<Box> boxes = Cut(shape, random);
    if (trial % 3 == 1) boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(random() % boxes.size()));
    if (trial % 3 == 2) {  // one moved over another
      const Box& other = boxes[random() % boxes.size()];
      boxes[random() % boxes.size()] = other;
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    const bool expected = TilesByCounting(shape, boxes);
    tiling += expected ? 1 : 0;
    ASSERT_EQ(Cover(boxes).Tiles(shape), expected) << "trial " << trial;
  }
  EXPECT_GT(tiling, 200);
  EXPECT_LT(tiling, 400);
}

}  // namespace
}  // namespace layercast
