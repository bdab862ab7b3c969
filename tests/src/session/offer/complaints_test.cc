// Warnings that peers cause: how many of them are logged.
#include "src/session/offer/complaints.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

namespace layercast {
namespace {

using std::chrono::seconds;

TEST(Complaints, AreLoggedWhileTheyAreFew) {
  Complaints complaints;
  const auto begin = Deadline::Clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(complaints.Admit("late", begin + i * seconds(1)), "late");
}

TEST(Complaints, OfAFloodAFewAreLoggedAndTheOthersCounted) {
  Complaints complaints;
  const auto begin = Deadline::Clock::now();
  for (int i = 0; i < Complaints::kAtOnce; ++i) EXPECT_EQ(complaints.Admit("garbage", begin), "garbage");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(complaints.Admit("garbage", begin), std::nullopt);
  EXPECT_EQ(complaints.Admit("garbage", begin + seconds(1)), "garbage (1000 warnings before it were left out)");
  EXPECT_EQ(complaints.Admit("garbage", begin + seconds(1)), std::nullopt);
  EXPECT_EQ(complaints.Admit("garbage", begin + seconds(2)), "garbage (1 warnings before it were left out)");
}

}  // namespace
}  // namespace layercast
