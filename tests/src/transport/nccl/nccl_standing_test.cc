#include "src/transport/nccl/fleet/standing.h"

#include <gtest/gtest.h>

namespace layercast::nccl_channel {
namespace {

TEST(NcclStanding, WhoeverKeepsAFleetWaitingAgainAndAgainSitsOutEverMore) {
  Standing standing;
  EXPECT_TRUE(standing.MayReturn());
  for (const int rests : {1, 2, 4, 8, 16, 32, 64, 64, 64}) {
    standing.PutApart();
    for (int rest = 0; rest < rests; ++rest) {
      EXPECT_FALSE(standing.MayReturn()) << rests;
      standing.Rested();
    }
    EXPECT_TRUE(standing.MayReturn()) << rests;
  }
  standing.Rested();  // in the fleet
  standing.PutApart();
  standing.Rested();
  EXPECT_TRUE(standing.MayReturn());
}

}  // namespace
}  // namespace layercast::nccl_channel
