#include "src/tensor/region.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(Region, InsideATensorIsAccepted) {
  EXPECT_NO_THROW(CheckInside({.offset = 4, .row_bytes = 8, .rows = 4, .stride = 32}, 4 + 3 * 32 + 8));
  EXPECT_NO_THROW(CheckInside({.offset = 10, .row_bytes = 0, .rows = 0, .stride = 0}, 10));
}

TEST(Region, OutsideATensorIsRefusedWithoutOverflow) {
  EXPECT_THROW(CheckInside({.offset = 4, .row_bytes = 8, .rows = 4, .stride = 32}, 4 + 3 * 32 + 7), Error);
  EXPECT_THROW(CheckInside({.offset = kMax, .row_bytes = 2, .rows = 1, .stride = 0}, 100), Error);
  EXPECT_THROW(CheckInside({.offset = 0, .row_bytes = 8, .rows = kMax, .stride = kMax}, 100), Error);
  EXPECT_THROW(CheckInside({.offset = 0, .row_bytes = 8, .rows = 2, .stride = 4}, 100), Error);
}

TEST(Region, PacksStridedRows) {
  std::vector<std::byte> source(20);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i);
  std::vector<std::byte> packed(4);
  Pack({.base = source.data() + 1, .row_bytes = 2, .rows = 2, .stride = 10}, packed.data());
  EXPECT_EQ(packed, (std::vector<std::byte>{std::byte{1}, std::byte{2}, std::byte{11}, std::byte{12}}));
}

TEST(Region, PacksRowsOfAnyLength) {
  std::vector<std::byte> source(200);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i);
  for (std::size_t row_bytes = 1; row_bytes <= 9; ++row_bytes) {
    const RegionView view{.base = source.data() + 1, .row_bytes = row_bytes, .rows = 13, .stride = 15};
    std::vector<std::byte> expected;
    for (std::size_t row = 0; row < view.rows; ++row) {
      expected.insert(expected.end(), view.row(row), view.row(row) + row_bytes);
    }
    std::vector<std::byte> packed(view.num_bytes());
    Pack(view, packed.data());
    EXPECT_EQ(packed, expected) << row_bytes;
  }
}

}  // namespace
}  // namespace layercast
