// How far behind its publisher a version may be: what counts, and what a refusal says.
#include "engine_side/server/reload/staleness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kHour{3'600'000};

Version StaleAt(std::uint64_t step) { return {"run", step, {step, 1}}; }

// What was heard now of a publisher that was asked about `asked`.
HeardOffer Heard(const Version& asked, std::uint64_t newest, const std::string& lineage = "run") {
  HeardOffer heard{.asked = {asked.lineage, asked.step, asked.digest}, .offer = {}, .at = Deadline::Clock::now()};
  heard.offer.newest = {{lineage, newest, {newest, 1}, "job"}};
  return heard;
}

// Empty: the version may answer.
std::string Why(std::uint64_t steps, const Version& served, const std::optional<HeardOffer>& heard) {
  const auto why = TooStale({.steps = steps, .heard_within = kHour}, Deadline::Clock::now(), served, "tcp://p", heard,
                            "it is silent");
  return why ? std::string(ErrorCodeName(why->code())) + ": " + why->what() : "";
}

TEST(Staleness, CountsStepsToTheNewest) {
  EXPECT_EQ(Why(2, StaleAt(40), Heard(StaleAt(40), 42)), "");
  EXPECT_EQ(Why(0, StaleAt(42), Heard(StaleAt(42), 42)), "");
  EXPECT_THAT(Why(2, StaleAt(40), Heard(StaleAt(40), 43)),
              AllOf(HasSubstr("failed_precondition: max_staleness: this engine serves run@40:"),
                    HasSubstr("3 steps behind: publisher tcp://p offers run@43:"), HasSubstr("of run 'job'"),
                    HasSubstr("expected at most 2 steps")));
}

TEST(Staleness, IsNotKnownOfAPublisherThatWasNotHeardLately) {
  EXPECT_THAT(Why(2, StaleAt(40), std::nullopt),
              AllOf(HasSubstr("unavailable: "), HasSubstr("heard never, expected within 3600000 ms (it is silent)")));
  HeardOffer old = Heard(StaleAt(40), 40);
  old.at -= 2 * kHour;
  EXPECT_THAT(Why(2, StaleAt(40), old), AllOf(HasSubstr("unavailable: "), HasSubstr("was heard 72000")));
}

TEST(Staleness, IsNotCountedAcrossLineagesAndRuns) {
  EXPECT_THAT(Why(9, StaleAt(40), Heard(StaleAt(40), 41, "other")), HasSubstr("a version of another lineage"));
  EXPECT_THAT(Why(9, StaleAt(60), Heard(StaleAt(60), 42)), HasSubstr("a later step, which is of no run"));
  HeardOffer followed = Heard(StaleAt(41), 42);
  followed.offer.known = followed.offer.shadowed = true;
  EXPECT_THAT(Why(9, StaleAt(41), followed), HasSubstr("a version of a run that another has followed"));
  EXPECT_EQ(Why(9, StaleAt(40), followed), "");  // which was not what was asked about
}

// Its newest was evicted, say.
TEST(Staleness, AnEngineAheadOfWhatIsOfferedIsNotBehind) {
  HeardOffer ahead = Heard(StaleAt(43), 42);
  ahead.offer.known = true;
  EXPECT_EQ(Why(0, StaleAt(43), ahead), "");
  ahead.offer.newest.clear();
  EXPECT_EQ(Why(0, StaleAt(43), ahead), "");
}

TEST(Staleness, TheCallsOwnBoundComesBeforeTheEngines) {
  const StalenessBound of_engine{.steps = 5, .heard_within = kHour};
  EXPECT_FALSE(StalenessBoundFrom(Json::object(), std::nullopt));
  EXPECT_EQ(StalenessBoundFrom({{"max_staleness", nullptr}}, of_engine)->steps, 5);
  const auto own = StalenessBoundFrom({{"max_staleness", {{"steps", 1}}}}, of_engine);
  EXPECT_EQ(own->steps, 1);
  EXPECT_EQ(own->heard_within, kHour);
  EXPECT_THAT(testing::ErrorOf([] { StalenessBoundFrom({{"max_staleness", {{"steps", -1}}}}, std::nullopt); },
                               ErrorCode::kInvalidArgument),
              HasSubstr("expected a number from 0 on, got -1"));
}

}  // namespace
}  // namespace layercast
