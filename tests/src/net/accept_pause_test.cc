#include "src/net/accept_pause.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

constexpr std::chrono::hours kHour{1};

TEST(AcceptPause, AListenerThatNobodyWaitsAtIsPolledOn) {
  AcceptPause pause(kHour);
  pause.Failed(EAGAIN);
  pause.Failed(ECONNABORTED);
  EXPECT_EQ(pause.events(), POLLIN);
  EXPECT_EQ(pause.AtMost(2 * kHour), 2 * kHour);
}

TEST(AcceptPause, OneThatCannotBeServedForLackOfDescriptorsIsLeftAlone) {
  AcceptPause pause(kHour);
  pause.Failed(EMFILE);
  EXPECT_EQ(pause.events(), 0);
  EXPECT_EQ(pause.AtMost(2 * kHour), kHour);
}

TEST(AcceptPause, Ends) {
  AcceptPause pause(std::chrono::milliseconds(0));
  pause.Failed(EMFILE);
  EXPECT_EQ(pause.events(), POLLIN);
}

}  // namespace
}  // namespace layercast
