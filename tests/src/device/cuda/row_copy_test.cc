// Which copy rows go by. Plain: no device is needed to say.
#include "src/device/cuda/row_copy.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;

TEST(RowCopy, RowsThatFollowEachOtherAreOneRunHoweverLong) {
  EXPECT_EQ(HowToCopyRows(100, 7, 100), RowCopy::kOneRun);
  EXPECT_EQ(HowToCopyRows(100, 1, 5 * kGiB), RowCopy::kOneRun);
  EXPECT_EQ(HowToCopyRows(5 * kGiB, 1, 5 * kGiB), RowCopy::kOneRun);
  EXPECT_EQ(HowToCopyRows(3 * kGiB, 2, 3 * kGiB), RowCopy::kOneRun);
}

TEST(RowCopy, RowsGoOneByOneBeyondThePitchThatCudaTakes) {
  EXPECT_EQ(HowToCopyRows(100, 7, 101), RowCopy::kPitched);
  EXPECT_EQ(HowToCopyRows(100, 7, 2 * kGiB - 1), RowCopy::kPitched);
  EXPECT_EQ(HowToCopyRows(100, 7, 2 * kGiB), RowCopy::kSingly);
  EXPECT_EQ(HowToCopyRows(3 * kGiB, 7, 4 * kGiB), RowCopy::kSingly);
}

// A region may say so: no copy of two dimensions reads rows over each other.
TEST(RowCopy, RowsThatOverlapGoOneByOne) { EXPECT_EQ(HowToCopyRows(100, 7, 0), RowCopy::kSingly); }

TEST(RowCopy, OfNothingThereIsNone) {
  EXPECT_EQ(HowToCopyRows(0, 7, 10), RowCopy::kNone);
  EXPECT_EQ(HowToCopyRows(100, 0, 100), RowCopy::kNone);
}

}  // namespace
}  // namespace layercast
