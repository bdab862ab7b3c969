#include "src/tensor/region_views.h"

#include <gtest/gtest.h>

#include <vector>

namespace layercast {
namespace {

// Runs, rows that lie apart, rows that follow each other, and nothing.
class RegionViewsTest : public ::testing::Test {
 protected:
  RegionViewsTest() {
    for (std::size_t i = 0; i < source_.size(); ++i) source_[i] = static_cast<std::byte>(i * 7 + i / 256);
    PackAll(views_, packed_.data());
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(4000);
  const std::vector<RegionView> views_ = {AsView(std::span(source_).first(100)),
                                          AsView({}),
                                          {source_.data() + 5, 3, 40, 11},
                                          PackedAt(source_.data() + 900, 7, 20),
                                          {source_.data(), 0, 9, 4},
                                          {source_.data() + 1000, 64, 30, 90},
                                          AsView({})};
  std::vector<std::byte> packed_ = std::vector<std::byte>(NumBytes(views_));
};

TEST_F(RegionViewsTest, SharesAreAllBytesInTheirOrder) {
  for (const std::size_t bytes : {1U, 10U, 64U, 100U, 5000U}) {
    std::vector<std::byte> together(packed_.size());
    std::size_t end = 0;
    for (const ViewShare& share : SharesOf(views_, bytes)) {
      EXPECT_EQ(share.begin, end);
      EXPECT_NE(NumBytes(share.views), 0U);
      EXPECT_LT(NumBytes(share.views), bytes + 64);  // a row is not cut
      PackAll(share.views, together.data() + share.begin);
      end = share.begin + NumBytes(share.views);
    }
    EXPECT_EQ(together, packed_) << bytes;
  }
  EXPECT_TRUE(SharesOf({}, 10).empty());
}

TEST_F(RegionViewsTest, AWalkReadsFromAnyByteOn) {
  for (std::size_t first = 0; first <= packed_.size(); ++first) {
    PackedBytes walk(views_, first);
    std::vector<std::byte> rest(packed_.size() - first + 1);
    std::size_t done = 0;
    while (const std::size_t read =
               walk.Read(std::span(rest).subspan(done, std::min<std::size_t>(33, rest.size() - done)))) {
      done += read;
    }
    ASSERT_EQ(done, packed_.size() - first);
    rest.pop_back();
    ASSERT_EQ(rest, std::vector<std::byte>(packed_.begin() + static_cast<std::ptrdiff_t>(first), packed_.end()))
        << first;
    EXPECT_TRUE(walk.Run().empty());
  }
}

}  // namespace
}  // namespace layercast
