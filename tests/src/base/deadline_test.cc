#include "src/base/deadline.h"

#include <gtest/gtest.h>

#include <utility>

namespace layercast {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Deadline, PassesAtItsTime) {
  EXPECT_TRUE(Deadline::After(milliseconds(0)).Passed());
  EXPECT_EQ(Deadline::After(milliseconds(-5)).Remaining(), milliseconds(0));
  EXPECT_FALSE(Deadline::After(hours(1)).Passed());
  EXPECT_GT(Deadline::After(hours(1)).Remaining(), milliseconds(3'590'000));
}

TEST(Deadline, NeverPassesThatIsFurtherAwayThanTheClockGoes) {
  const Deadline never = Deadline::After(milliseconds::max());
  EXPECT_EQ(never.at(), Deadline::Clock::time_point::max());
  EXPECT_FALSE(never.Passed());
  EXPECT_EQ(never.Remaining(), Deadline::kLongest);
  EXPECT_TRUE(std::in_range<int>(Deadline::kLongest.count()));
}

TEST(Deadline, PassesOnceAStopIsAskedForAndSoDoesAStepOfIt) {
  std::stop_source stop;
  const Deadline deadline = Deadline::After(hours(1)).OrStop(stop.get_token());
  const Deadline step = deadline.AtMost(milliseconds(60'000));
  EXPECT_FALSE(deadline.Passed() || step.Passed() || step.Stopped());
  stop.request_stop();
  EXPECT_TRUE(deadline.Passed() && step.Passed() && step.Stopped());
  EXPECT_EQ(deadline.Remaining(), milliseconds(0));
  EXPECT_FALSE(Deadline::After(hours(1)).Passed());
}

TEST(Deadline, NoWaitIsLongerThanALookWhereAStopMayBeAskedFor) {
  const std::stop_source stop;
  const Deadline deadline = Deadline::After(hours(1)).OrStop(stop.get_token());
  EXPECT_LE(deadline.Remaining(), Deadline::kLook);
  const auto look = deadline.NextLook();
  EXPECT_LE(look, Deadline::Clock::now() + Deadline::kLook);
  EXPECT_GT(deadline.at(), Deadline::Clock::now() + milliseconds(3'590'000));
}

}  // namespace
}  // namespace layercast
