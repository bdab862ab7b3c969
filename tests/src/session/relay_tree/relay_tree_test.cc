// Who takes from whom, as the publisher plans it.
#include "src/session/relay_tree/relay_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "layercast/error.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

SessionKey Key(std::uint64_t number) { return {"", number}; }
std::string EndpointOf(std::uint64_t number) { return "tcp://relay:" + std::to_string(number); }

RelayTree::Receiver Relaying(std::uint64_t number, const std::string& host = "") {
  return {.host = host.empty() ? "host " + std::to_string(number) : host,
          .place = {EndpointOf(number), number},
          .takes_relays = true};
}

// A tree, and where it has sent each of its receivers.
class Planned {
 public:
  void Join(std::uint64_t number) { Join(number, Relaying(number)); }
  void Join(std::uint64_t number, const RelayTree::Receiver& receiver) {
    places[number] = tree.Join(Key(number), receiver, Pace::TimePoint());
  }
  void Lose(std::uint64_t number) {
    const auto move = tree.Lost(Key(number), *places[number]);
    ASSERT_TRUE(move);
    places[number] = move->to;
  }
  // It has waited for chunks for so much of the second that ends now; true: it was sent elsewhere.
  bool SecondPasses(std::uint64_t number, double waited, int now) {
    const auto escape = tree.Note(Key(number),
                                  {.bytes = static_cast<std::uint64_t>(now),
                                   .elapsed_us = static_cast<std::uint64_t>(now) * 1'000'000,
                                   .waited_us = waited_[number] += static_cast<std::uint64_t>(waited * 1e6)},
                                  Pace::TimePoint(std::chrono::seconds(now)));
    if (escape) places[number] = escape->move.to;
    return escape.has_value();
  }
  // It has waited all the seconds until now, and nothing ever came; true: it was sent elsewhere.
  bool SecondPassesInVain(std::uint64_t number, int now) {
    const std::uint64_t microseconds = static_cast<std::uint64_t>(now) * 1'000'000;
    const auto escape = tree.Note(Key(number), {.bytes = 0, .elapsed_us = microseconds, .waited_us = microseconds},
                                  Pace::TimePoint(std::chrono::seconds(now)));
    if (escape) places[number] = escape->move.to;
    return escape.has_value();
  }
  void Leave(std::uint64_t number) {
    places.erase(number);
    for (const RelayTree::Move& move : tree.Leave(Key(number))) places[move.key.session] = move.to;
  }
  std::size_t FedBy(const std::optional<RelayPlace>& place) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(places, [&](const auto& taker) { return taker.second == place; }));
  }
  bool TakesFrom(std::uint64_t number, std::uint64_t relay) const {
    return places.at(number) == RelayPlace{EndpointOf(relay), relay};
  }
  // Following them up ends at the publisher, for each.
  void ExpectNoCircles() const {
    for (const auto& [number, _] : places) {
      std::size_t steps = 0;
      for (auto at = places.at(number); at; at = places.at(at->offer)) ASSERT_LE(++steps, places.size()) << number;
    }
  }

  RelayTree tree;
  std::map<std::uint64_t, std::optional<RelayPlace>> places;

 private:
  std::map<std::uint64_t, std::uint64_t> waited_;  // microseconds
};

TEST(RelayTree, AFinishedReceiversNumberIsNoOtherReceivers) {
  Planned plan;
  plan.Join(1);
  plan.Join(2);
  plan.tree.Finish(Key(1));
  EXPECT_THAT([&] { plan.tree.Join(Key(1), Relaying(3), Pace::TimePoint()); },
              ThrowsMessage<Error>("session 1: expected a number of its own, got a finished session's"));
  EXPECT_TRUE(plan.TakesFrom(2, 1));
  plan.Join(4);
  plan.Join(5);
  EXPECT_EQ(plan.FedBy(RelayPlace{EndpointOf(1), 1}), RelayTree::kFanOut);
}

TEST(RelayTree, ThePublisherFeedsOneAndEachRelayTwoSoThatDepthIsLogarithmic) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    plan.Join(i);
    std::size_t log = 0;
    while ((std::size_t{2} << log) <= i) ++log;
    EXPECT_EQ(plan.tree.DepthOf(Key(i)), log) << i;
  }
  EXPECT_EQ(plan.FedBy(std::nullopt), 1U);
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    EXPECT_LE(plan.FedBy(RelayPlace{EndpointOf(i), i}), RelayTree::kFanOut) << i;
  }
  plan.ExpectNoCircles();
}

TEST(RelayTree, WithoutAnyoneWhoRelaysThePublisherFeedsAll) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 3; ++i) plan.Join(i, {.host = "h", .place = {}, .takes_relays = true});
  EXPECT_EQ(plan.FedBy(std::nullopt), 3U);
}

TEST(RelayTree, OneThatReadsThePublishersMemoryTakesFromNobodyElseAndMayFeedOthers) {
  Planned plan;
  RelayTree::Receiver attached = Relaying(1);
  attached.takes_relays = false;
  plan.Join(1, attached);
  plan.Join(2);
  attached = Relaying(3);
  attached.takes_relays = false;
  plan.Join(3, attached);
  EXPECT_EQ(plan.places.at(1), std::nullopt);
  EXPECT_TRUE(plan.TakesFrom(2, 1));
  EXPECT_EQ(plan.places.at(3), std::nullopt);
}

TEST(RelayTree, ARelayOnTheSameHostIsPreferred) {
  Planned plan;
  plan.Join(1, Relaying(1, "a"));
  plan.Join(2, Relaying(2, "b"));
  plan.Join(3, Relaying(3, "b"));
  EXPECT_TRUE(plan.TakesFrom(2, 1));
  EXPECT_TRUE(plan.TakesFrom(3, 2));
}

TEST(RelayTree, WhenARelayGoesThoseItFedGoElsewhereAndTheirOwnFollowersStay) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 7; ++i) plan.Join(i);  // 1 feeds 2 and 3; 2 feeds 4 and 5; 3 feeds 6 and 7
  plan.Leave(1);
  EXPECT_EQ(plan.FedBy(std::nullopt), 1U);
  for (const std::uint64_t i : {4, 5}) EXPECT_TRUE(plan.TakesFrom(i, 2)) << i;
  for (const std::uint64_t i : {6, 7}) EXPECT_TRUE(plan.TakesFrom(i, 3)) << i;
  plan.ExpectNoCircles();
}

TEST(RelayTree, WhereverRelaysGoNobodyIsLeftOutOrSentInACircle) {
  for (std::uint64_t first = 1; first <= 31; ++first) {
    Planned plan;
    for (std::uint64_t i = 1; i <= 31; ++i) plan.Join(i);
    for (std::uint64_t i = 0; i < 20; ++i) {
      plan.Leave((first * (i + 1) * 7) % 31 + 1);
      plan.ExpectNoCircles();
      EXPECT_LE(plan.FedBy(std::nullopt), 2U);
    }
  }
}

TEST(RelayTree, NobodyIsSentToARelayThatSomebodyCouldNotTakeFrom) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 2; ++i) plan.Join(i);
  plan.Lose(2);
  EXPECT_EQ(plan.places.at(2), std::nullopt);
  plan.Join(3);
  EXPECT_TRUE(plan.TakesFrom(3, 2));
}

TEST(RelayTree, OneThatHasLostTwoIsFedByThePublisher) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    plan.Join(i);
    plan.tree.Finish(Key(i));  // and has been switched off since, as it were
  }
  plan.Join(6);
  for (std::size_t i = 0; i < RelayTree::kMostLost; ++i) {
    ASSERT_NE(plan.places.at(6), std::nullopt);
    plan.Lose(6);
  }
  EXPECT_EQ(plan.places.at(6), std::nullopt);
}

TEST(RelayTree, AComplaintOfOneWhoWasNotSentThereChangesNothingForOthers) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 3; ++i) plan.Join(i);
  EXPECT_FALSE(plan.tree.Lost(Key(1), {EndpointOf(2), 2}));  // it takes from the publisher
  EXPECT_FALSE(plan.tree.Lost(Key(99), {EndpointOf(1), 1}));
  EXPECT_FALSE(plan.tree.Lost(Key(2), {EndpointOf(3), 3}));
  for (std::uint64_t i = 4; i <= 5; ++i) plan.Join(i);
  EXPECT_TRUE(plan.TakesFrom(4, 2));
  EXPECT_TRUE(plan.TakesFrom(5, 2));
}

// Its complaint and the word that its relay has gone cross: it is told once where to go.
TEST(RelayTree, OneThatWasSentElsewhereBeforeItComplainedIsNotSentTwice) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 3; ++i) plan.Join(i);
  plan.Leave(1);
  EXPECT_FALSE(plan.tree.Lost(Key(2), {EndpointOf(1), 1}));
  EXPECT_EQ(plan.places.at(2), std::nullopt);
  EXPECT_TRUE(plan.TakesFrom(3, 2));
}

// 1 feeds 2 and 3, 2 feeds 4 and 5; 1 is slow.
class SlowRoot : public ::testing::Test {
 protected:
  SlowRoot() {
    for (std::uint64_t i = 1; i <= 5; ++i) plan_.Join(i);
  }
  // A second in which 1 has no time, and all others wait; who was sent elsewhere.
  std::vector<std::uint64_t> SecondPasses() {
    ++now_;
    plan_.SecondPasses(1, 0.05, now_);
    std::vector<std::uint64_t> moved;
    for (std::uint64_t i = 2; i <= 5; ++i) {
      if (plan_.SecondPasses(i, 1, now_)) moved.push_back(i);
    }
    return moved;
  }

  Planned plan_;
  int now_ = 0;
};

TEST_F(SlowRoot, ThoseWhomItFedGoElsewhereAfterAWhileAndTheirOwnFollowersStay) {
  EXPECT_THAT(SecondPasses(), IsEmpty());
  EXPECT_THAT(SecondPasses(), ElementsAre(2, 3));
  EXPECT_EQ(plan_.places.at(2), std::nullopt) << "all others wait for the same";
  for (const std::uint64_t i : {4, 5}) EXPECT_TRUE(plan_.TakesFrom(i, 2)) << i;
  EXPECT_TRUE(plan_.TakesFrom(3, 4)) << "2 feeds two";
  plan_.ExpectNoCircles();
}

TEST_F(SlowRoot, NobodyNewIsSentToItOrToThoseBehindIt) {
  SecondPasses();
  plan_.SecondPasses(1, 0.05, 2);
  ASSERT_TRUE(plan_.SecondPasses(2, 1, 2));  // 3 is behind it still
  plan_.Join(6);
  EXPECT_TRUE(plan_.TakesFrom(6, 4));
}

TEST_F(SlowRoot, ASecondInWhichTheyDidNotWaitForgivesIt) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(SecondPasses(), IsEmpty());
    ++now_;
    for (std::uint64_t k = 1; k <= 5; ++k) EXPECT_FALSE(plan_.SecondPasses(k, 0.05, now_)) << k;
  }
}

TEST(RelayTree, WhereAllWaitForThePublisherNobodyMoves) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 7; ++i) plan.Join(i);
  for (int now = 1; now < 10; ++now) {
    for (std::uint64_t i = 1; i <= 7; ++i) EXPECT_FALSE(plan.SecondPasses(i, 1, now)) << i;
  }
}

TEST(RelayTree, OneToWhomNothingComesForLongGoesElsewhereWhateverElseIsKnown) {
  Planned plan;
  plan.Join(1);
  plan.tree.Finish(Key(1));  // and never said how it got on
  for (const std::uint64_t i : {2, 3}) plan.Join(i);
  for (int now = 1; now <= 4; ++now) {
    for (const std::uint64_t i : {2, 3}) EXPECT_FALSE(plan.SecondPassesInVain(i, now)) << i << " at " << now;
  }
  for (const std::uint64_t i : {2, 3}) {
    EXPECT_TRUE(plan.SecondPassesInVain(i, 5)) << i;
    EXPECT_FALSE(plan.TakesFrom(i, 1)) << i;
  }
}

TEST(RelayTree, ARelayToWhichNothingComesItselfIsLeftOnlyOnceThePublisherFeedsIt) {
  Planned plan;
  for (std::uint64_t i = 1; i <= 5; ++i) plan.Join(i);  // 1 feeds 2 and 3, 2 feeds 4 and 5
  std::vector<std::pair<int, std::uint64_t>> moved;     // when, and who
  for (int now = 1; now <= 10; ++now) {
    for (std::uint64_t i = 1; i <= 5; ++i) {
      if (plan.SecondPassesInVain(i, now)) moved.emplace_back(now, i);
    }
    if (now == 8) {
      for (const std::uint64_t i : {4, 5}) EXPECT_TRUE(plan.TakesFrom(i, 2)) << i;
    }
  }
  EXPECT_THAT(moved, ElementsAre(Pair(5, 2), Pair(5, 3), Pair(9, 4), Pair(9, 5)));
}

TEST(RelayTree, OfThoseThatHaveFinishedTheLatestAreRememberedAndWhoeverFeedsSomebody) {
  Planned plan;
  plan.Join(1);
  plan.tree.Finish(Key(1));
  plan.Join(2);
  ASSERT_TRUE(plan.TakesFrom(2, 1));
  for (std::uint64_t i = 3; i <= 1000; ++i) {
    plan.Join(i);
    plan.tree.Finish(Key(i));
  }
  EXPECT_EQ(plan.tree.size(), RelayTree::kMostFinished + 2);
  EXPECT_TRUE(plan.tree.StandingOf(Key(1)));
  EXPECT_TRUE(plan.tree.StandingOf(Key(1000)));
  EXPECT_FALSE(plan.tree.StandingOf(Key(3)));
  EXPECT_TRUE(plan.tree.HasReceivers());
  plan.tree.Finish(Key(2));
  EXPECT_FALSE(plan.tree.HasReceivers());
}

TEST(RelayTree, OneThatHasFinishedServesLateJoinersUntilSomebodyComplains) {
  Planned plan;
  plan.Join(1);
  plan.tree.Finish(Key(1));
  plan.Join(2);
  EXPECT_TRUE(plan.TakesFrom(2, 1));
  plan.Lose(2);
  EXPECT_EQ(plan.places.at(2), std::nullopt);
  EXPECT_THAT(plan.tree.Leave(Key(1)), IsEmpty());
}

TEST(RelayTree, OneThatTriesAgainTakesThePlaceOfWhatItWas) {
  Planned plan;
  plan.Join(1);
  plan.Join(2);
  plan.tree.Finish(Key(2));  // given up
  plan.Join(3, {.host = "h", .place = {EndpointOf(2), 33}, .takes_relays = true});
  EXPECT_TRUE(plan.TakesFrom(3, 1));
  for (std::uint64_t i = 4; i <= 6; ++i) plan.Join(i);
  EXPECT_EQ(plan.FedBy(RelayPlace{EndpointOf(2), 2}), 0U);
  EXPECT_EQ(plan.FedBy(RelayPlace{EndpointOf(2), 33}), 2U);
}

}  // namespace
}  // namespace layercast::testing
