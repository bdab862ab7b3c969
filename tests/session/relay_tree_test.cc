// Who takes from whom, as the publisher plans it.
#include "src/session/relay_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace layercast::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

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
    places[number] = tree.Join(Key(number), receiver);
  }
  void Lose(std::uint64_t number) { places[number] = tree.Lost(Key(number), *places[number]); }
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
};

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
  plan.tree.Lost(Key(1), {EndpointOf(2), 2});  // it takes from the publisher
  plan.tree.Lost(Key(99), {EndpointOf(1), 1});
  for (std::uint64_t i = 4; i <= 5; ++i) plan.Join(i);
  EXPECT_TRUE(plan.TakesFrom(4, 2));
  EXPECT_TRUE(plan.TakesFrom(5, 2));
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
