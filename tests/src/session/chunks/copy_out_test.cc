// Copies of what a channel hands out views of: the same bytes, whoever makes them.
#include "src/session/chunks/copy_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/tensor/region_views.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

class CopyOutTest : public ::testing::Test {
 protected:
  CopyOutTest() {
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + i / 251);
  }
  // Expects what one thread makes, of two pools and of none.
  void ExpectPacked(const std::vector<RegionView>& views) {
    std::vector<std::byte> expected(NumBytes(views));
    PackAll(views, expected.data());
    for (WorkerPool* pool : {static_cast<WorkerPool*>(nullptr), &two_, &five_}) {
      std::vector<std::byte> copied(expected.size() + 1);
      const std::vector<RegionView> copies = CopyOut(views, copied.data(), pool);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), copied.begin()));
      EXPECT_EQ(copied.back(), std::byte{0});
      ASSERT_EQ(copies.size(), views.size());
      const std::byte* at = copied.data();
      for (std::size_t i = 0; i < views.size(); ++i) {
        EXPECT_EQ(copies[i].base, at) << i;
        EXPECT_EQ(copies[i].row_bytes, views[i].row_bytes) << i;
        EXPECT_EQ(copies[i].rows, views[i].rows) << i;
        EXPECT_EQ(copies[i].stride, views[i].row_bytes) << i;
        at += views[i].num_bytes();
      }
    }
  }
  const std::byte* at(std::size_t offset) const { return source_.data() + offset; }

  std::vector<std::byte> source_ = std::vector<std::byte>(6 * kMiB);
  WorkerPool two_{2};
  WorkerPool five_{5};
};

TEST_F(CopyOutTest, OfOneRunIsWhole) {
  ExpectPacked({AsView({at(1), 4 * kMiB + 3})});
  ExpectPacked({AsView({at(1), 1000})});
}

TEST_F(CopyOutTest, OfRowsThatLieApartIsWhole) {
  ExpectPacked({{at(3), 3000, 1999, 3001}});
  ExpectPacked({{at(0), 2 * kMiB, 2, 3 * kMiB}, {at(5), 7, 300'000, 9}});
}

TEST_F(CopyOutTest, OfManyViewsOfAllKindsIsWhole) {
  std::vector<RegionView> views;
  for (std::size_t i = 0; i < 2000; ++i) views.push_back({at(i * 2000), 50 + i % 3, 1 + i % 20, 60});
  views.push_back(AsView({at(kMiB), 2 * kMiB}));
  views.push_back({at(0), 0, 0, 0});
  views.push_back(PackedAt(at(9), 1000, 2000));
  ExpectPacked(views);
}

TEST_F(CopyOutTest, OfNothingIsNothing) { ExpectPacked({}); }

}  // namespace
}  // namespace layercast::testing
