// How long a peer counts as silent, in time that the test makes up.
#include "engine_side/server/group/silence.h"

#include <gtest/gtest.h>

#include <chrono>

namespace layercast {
namespace {

using namespace std::chrono_literals;

constexpr auto kInterval = 500ms;

class SilenceTest : public ::testing::Test {
 protected:
  std::chrono::nanoseconds LookAfter(std::chrono::nanoseconds passed) { return silence_.Look(now_ += passed); }
  void HearAfter(std::chrono::nanoseconds passed) { silence_.Heard(now_ += passed); }

 private:
  Silence::Clock::time_point now_{};
  Silence silence_{now_, kInterval};
};

TEST_F(SilenceTest, LastsFromTheBeginningOrFromWhatWasHeardLast) {
  EXPECT_EQ(LookAfter(500ms), 500ms);
  EXPECT_EQ(LookAfter(510ms), 1010ms);
  HearAfter(300ms);
  EXPECT_EQ(LookAfter(200ms), 200ms);
  EXPECT_EQ(LookAfter(500ms), 700ms);
}

TEST_F(SilenceTest, DoesNotLastWhileTheWatcherItselfStandsStill) {
  EXPECT_EQ(LookAfter(500ms), 500ms);
  EXPECT_EQ(LookAfter(1h), 500ms + 2 * kInterval) << "it was stopped; what came meanwhile is not read yet";
  HearAfter(1ms);
  EXPECT_EQ(LookAfter(499ms), 499ms);
}

TEST_F(SilenceTest, GoesOnAfterTheWatcherStoodStillIfNothingIsHeard) {
  LookAfter(7s);
  for (int i = 0; i < 8; ++i) LookAfter(500ms);
  EXPECT_EQ(LookAfter(500ms), 2 * kInterval + 9 * kInterval);
}

}  // namespace
}  // namespace layercast
