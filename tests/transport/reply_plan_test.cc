// How a chunk is cut into pieces: long runs as they lie, the rest gathered.
#include "src/transport/reply_plan.h"

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

TEST(ReplyPlan, AnEmptyChunkIsOneEmptyPiece) {
  ReplyPlan plan({{nullptr, 0, 5, 0}});
  EXPECT_FALSE(plan.done());
  EXPECT_TRUE(plan.Take(kPieceBytes).in_place.empty());
  EXPECT_EQ(plan.Gather(nullptr, kPieceBytes), 0U);
  EXPECT_TRUE(plan.done());
}

}  // namespace
}  // namespace layercast
