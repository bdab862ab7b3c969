#include "src/transport/accepting.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

constexpr std::chrono::seconds kLong{10};

TEST(Accepting, AListenerThatNobodyWaitsAtIsPolledOn) {
  Accepting accepting;
  accepting.Failed(EAGAIN);
  accepting.Failed(ECONNABORTED);
  EXPECT_EQ(accepting.events(), POLLIN);
  EXPECT_EQ(accepting.AtMost(kLong), kLong);
}

TEST(Accepting, OneThatCannotBeServedForLackOfDescriptorsIsLeftAloneForAWhile) {
  Accepting accepting;
  accepting.Failed(EMFILE);
  EXPECT_EQ(accepting.events(), 0);
  EXPECT_LT(accepting.AtMost(kLong), std::chrono::seconds(1));
  const Deadline soon = Deadline::After(std::chrono::seconds(20));
  while (accepting.events() == 0 && !soon.Passed()) {
  }
  EXPECT_EQ(accepting.events(), POLLIN);
}

}  // namespace
}  // namespace layercast
