#include "src/base/rate_limit.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

namespace layercast {
namespace {

using std::chrono::seconds;
const Deadline::Clock::time_point kBegin = Deadline::Clock::time_point(std::chrono::hours(1));

TEST(RateLimit, LetsThroughWhatIsRare) {
  RateLimit limit;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(limit.Admit(kBegin + i * seconds(1)), 0U);
}

TEST(RateLimit, OfAFloodLetsAFewThroughAndCountsTheOthers) {
  RateLimit limit;
  for (int i = 0; i < RateLimit::kAtOnce; ++i) EXPECT_EQ(limit.Admit(kBegin), 0U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.Admit(kBegin), std::nullopt);
  EXPECT_FALSE(limit.Idle(kBegin));
  EXPECT_EQ(limit.Admit(kBegin + seconds(1)), 1000U);
  EXPECT_EQ(limit.Admit(kBegin + seconds(1)), std::nullopt);
  EXPECT_EQ(limit.Admit(kBegin + seconds(2)), 1U);
  EXPECT_TRUE(limit.Idle(kBegin + seconds(60)));
}

TEST(RateLimits, KeepKindsApart) {
  RateLimits limits;
  for (int i = 0; i < 1000; ++i) static_cast<void>(limits.Admit("flood", kBegin));
  EXPECT_EQ(limits.Admit("flood", kBegin), std::nullopt);
  EXPECT_EQ(limits.Admit("rare", kBegin), 0U);
}

TEST(RateLimits, MoreKindsThanAreToldApartCountAsOneUntilOthersAreIdle) {
  RateLimits limits;
  int admitted = 0;
  for (int i = 0; i < 10'000; ++i) admitted += limits.Admit("kind " + std::to_string(i), kBegin) ? 1 : 0;
  EXPECT_EQ(admitted, static_cast<int>(RateLimits::kMostKinds) + RateLimit::kAtOnce);
  EXPECT_EQ(limits.Admit("late", kBegin), std::nullopt);
  EXPECT_EQ(limits.Admit("late", kBegin + seconds(60)), 0U);
}

}  // namespace
}  // namespace layercast
