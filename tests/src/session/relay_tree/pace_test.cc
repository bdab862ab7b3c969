// When a relay is said to hold up who takes from it.
#include "src/session/relay_tree/pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace layercast::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

constexpr double kMega = 1e6;

// A receiver that has said once how its last second went.
Pace Said(double waited, double megabytes_per_second, double within_reach = 0) {
  Pace pace{Pace::TimePoint()};
  pace.Note({.bytes = static_cast<std::uint64_t>(megabytes_per_second * kMega),
             .elapsed_us = 1'000'000,
             .waited_us = static_cast<std::uint64_t>(waited * 1e6),
             .bytes_per_second = static_cast<std::uint64_t>(within_reach * kMega)},
            Pace::TimePoint(milliseconds(1000)));
  return pace;
}

constexpr Pace::TimePoint kSoonAfter(milliseconds(1100));
constexpr Pace::TimePoint kMuchLater(milliseconds(9000));

std::optional<std::string> WhyHeldUp(const Pace& follower, const Pace& relay, bool finished = false,
                                     std::vector<double> others = {}, Pace::TimePoint now = kSoonAfter) {
  for (double& other : others) other *= kMega;
  return layercast::WhyHeldUp(follower, {relay, finished}, others, now);
}

TEST(Pace, IsOfTheLastPeriodAlone) {
  Pace pace{Pace::TimePoint()};
  pace.Note({.bytes = 1000, .elapsed_us = 500'000, .waited_us = 500'000}, Pace::TimePoint(milliseconds(500)));
  EXPECT_EQ(pace.waiting(), 1);
  EXPECT_EQ(
      pace.Note({.bytes = 5000, .elapsed_us = 1'000'000, .waited_us = 550'000}, Pace::TimePoint(milliseconds(1000))),
      milliseconds(500));
  EXPECT_NEAR(pace.waiting(), 0.1, 1e-9);
  EXPECT_NEAR(pace.rate(), 8000, 1e-6);
  EXPECT_NEAR(pace.mean_rate(), 5000, 1e-6);
  EXPECT_FALSE(pace.IsSilent(Pace::TimePoint(milliseconds(2400))));
  EXPECT_TRUE(pace.IsSilent(Pace::TimePoint(milliseconds(2600))));
}

TEST(Pace, WhatMakesNoSenseIsNotSaid) {
  Pace pace = Said(0.5, 10);
  for (const wire::Progress& nonsense :
       {wire::Progress{.bytes = 1, .elapsed_us = 2'000'000, .waited_us = 900'000}, wire::Progress{},
        wire::Progress{.bytes = 10'000'000, .elapsed_us = 1'000'000, .waited_us = 900'000},
        wire::Progress{.bytes = 20'000'000, .elapsed_us = 2'000'000, .waited_us = 1}}) {
    EXPECT_EQ(pace.Note(nonsense, kSoonAfter), milliseconds(0));
    EXPECT_EQ(pace.waiting(), 0.5);
  }
  const wire::Progress leap{.bytes = ~0ULL, .elapsed_us = ~0ULL, .waited_us = ~0ULL, .bytes_per_second = ~0ULL};
  EXPECT_LE(pace.Note(leap, kSoonAfter), 2 * Pace::kPeriod);
}

TEST(Pace, ARelayThatIsBusyWithItsOwnChunksHoldsUpWhoCouldTakeMore) {
  EXPECT_THAT(WhyHeldUp(Said(0.9, 10), Said(0.1, 10)), Optional(HasSubstr("busy with them")));
  EXPECT_EQ(WhyHeldUp(Said(0.5, 10), Said(0.1, 10)), std::nullopt) << "the follower is nearly as slow";
  EXPECT_EQ(WhyHeldUp(Said(0.9, 10), Said(0.8, 10)), std::nullopt) << "the relay waits for others itself";
}

TEST(Pace, ARelayThatSaysNothingForLongIsBusyAndOneThatHasAllChunksIsNot) {
  const Pace follower = Said(1, 0);
  EXPECT_THAT(WhyHeldUp(follower, Said(1, 10), false, {}, kMuchLater), Optional(HasSubstr("busy with them")));
  EXPECT_EQ(WhyHeldUp(follower, Said(1, 10), true, {}, kMuchLater), std::nullopt);
}

TEST(Pace, OneThatSendsFarLessThanOthersGetAndThePublisherCouldIsSlow) {
  EXPECT_THAT(WhyHeldUp(Said(1, 10, 1000), Said(1, 500), true, {90, 100, 110}),
              Optional(AllOf(HasSubstr("others get 100 MB/s"), HasSubstr("at 10 MB/s"), HasSubstr("1e+03 MB/s"))));
  EXPECT_EQ(WhyHeldUp(Said(1, 10, 1000), Said(1, 500), true, {9, 10, 11}), std::nullopt) << "all are that slow";
  EXPECT_EQ(WhyHeldUp(Said(1, 10, 40), Said(1, 500), true, {90, 100, 110}), std::nullopt) << "its own link is slow";
  EXPECT_EQ(WhyHeldUp(Said(1, 10), Said(1, 500), true, {90, 100, 110}), std::nullopt) << "nothing was measured";
}

TEST(Pace, WithNobodyBesideItWhatTheRelayGotIsTheMeasure) {
  EXPECT_THAT(WhyHeldUp(Said(1, 10, 1000), Said(1, 500), true), Optional(HasSubstr("it got 500 MB/s")));
  EXPECT_EQ(WhyHeldUp(Said(1, 10, 1000), Said(1, 30), true), std::nullopt);
}

TEST(Pace, OfARelayThatHadAllBeforeItSaidAnythingThePublishersChannelIsTheOnlyMeasure) {
  const Pace never_said{Pace::TimePoint()};
  EXPECT_THAT(
      WhyHeldUp(Said(1, 10, 1000), never_said, true),
      Optional(AllOf(HasSubstr("at 10 MB/s; the publisher's channel did 1e+03 MB/s"), Not(HasSubstr("it got")))));
  EXPECT_EQ(WhyHeldUp(Said(1, 200, 1000), never_said, true), std::nullopt);
  EXPECT_EQ(WhyHeldUp(Said(1, 10, 1000), never_said, true, {0, 0}), std::nullopt) << "nobody else gets anything";
}

TEST(Pace, WhoWaitsAndGetsNothingStarves) {
  EXPECT_TRUE(Said(0.9, 0).starves());
  EXPECT_FALSE(Said(0.9, 1).starves());
  EXPECT_FALSE(Said(0.5, 0).starves()) << "it is busy with what it has";
}

}  // namespace
}  // namespace layercast::testing
