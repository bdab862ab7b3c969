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

}  // namespace
}  // namespace layercast
