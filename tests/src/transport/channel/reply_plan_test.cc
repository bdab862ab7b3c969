// How a chunk is cut into pieces: long runs as they lie, the rest gathered.
#include "src/transport/channel/reply_plan.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

TEST(ReplyPlan, SendsLongRunsInPlaceAndGathersTheRest) {
  std::vector<std::byte> memory(5 << 20);
  const std::byte* base = memory.data();
  const std::size_t mib = kPieceBytes;
  ReplyPlan plan({{base, 10, 3, 100}, {base, 2 * mib + mib / 2, 1, 0}, {base, 0, 7, 0}, {base, 5, 1, 5}});
  std::vector<std::byte> gathered(kPieceBytes);
  ReplyPlan::Next next = plan.Take(kPieceBytes);
  EXPECT_TRUE(next.in_place.empty());
  EXPECT_EQ(plan.Gather(gathered.data(), kPieceBytes), 30U);
  for (const std::size_t bytes : {mib, mib, mib / 2}) {
    EXPECT_FALSE(plan.done());
    next = plan.Take(kPieceBytes);
    EXPECT_EQ(next.in_place.size(), bytes);
  }
  EXPECT_EQ(next.in_place.data(), base + 2 * mib);
  EXPECT_EQ(next.offset, 30 + 2 * mib);
  EXPECT_TRUE(plan.Take(kPieceBytes).in_place.empty());
  EXPECT_EQ(plan.Gather(gathered.data(), kPieceBytes), 5U);
  EXPECT_TRUE(plan.done());
}

TEST(ReplyPlan, HandsOutWholeRowsOfARegionAtOnce) {
  const std::vector<std::byte> memory(10'000);
  const std::byte* base = memory.data();
  ReplyPlan plan({{base, 10, 30, 100}, {base, 0, 7, 0}, {base, 50, 2, 50}, {base, 7, 3, 0}});
  const std::vector<std::pair<std::size_t, RegionView>> expected = {
      {95, {base, 10, 9, 100}},            // as many whole ones as fit
      {5, {base + 900, 5, 1, 5}},          // a part of one that does not
      {1000, {base + 905, 5, 1, 5}},       // the rest of it
      {1000, {base + 1000, 10, 20, 100}},  // what is left, and nothing of the next
      {1000, {base, 100, 1, 100}},         // rows without gaps are one
      {14, {base, 7, 2, 0}},
      {14, {base, 7, 1, 0}},  // also such as lie on each other
  };
  std::uint64_t offset = 0;
  for (const auto& [most, view] : expected) {
    EXPECT_FALSE(plan.done());
    EXPECT_EQ(plan.offset(), offset);
    const RegionView taken = plan.TakeView(most);
    EXPECT_EQ(taken.base, view.base);
    EXPECT_EQ(taken.row_bytes, view.row_bytes);
    EXPECT_EQ(taken.rows, view.rows);
    if (view.rows > 1) {
      EXPECT_EQ(taken.stride, view.stride);
    }
    offset += taken.num_bytes();
  }
  EXPECT_TRUE(plan.done());
  EXPECT_EQ(plan.TakeView(1).num_bytes(), 0U);
}

TEST(ReplyPlan, AnEmptyChunkIsOneEmptyPiece) {
  ReplyPlan plan({{nullptr, 0, 5, 0}});
  EXPECT_FALSE(plan.done());
  EXPECT_TRUE(plan.Take(kPieceBytes).in_place.empty());
  EXPECT_EQ(plan.Gather(nullptr, kPieceBytes), 0U);
  EXPECT_TRUE(plan.done());
}

}  // namespace
}  // namespace layercast
