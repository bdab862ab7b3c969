// Who has taken how much: engines by numbers that stay few, whatever their names are.
#include "src/session/takers/taker_tally.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

wire::Hello From(const std::string& engine, std::uint32_t rank = 0, std::uint32_t ranks = 1) {
  wire::Hello hello;
  hello.engine = engine;
  hello.rank = rank;
  hello.ranks = ranks;
  return hello;
}

Version Step(std::uint64_t step, const std::string& lineage = "run") { return {lineage, step, Digest()}; }

TEST(TakerTallyTest, AVersionIsTakenOnceAllRanksHaveIt) {
  TakerTally tally;
  tally.Took(From("e", 0, 2), Step(1));
  tally.Took(From("e", 0, 2), Step(1));  // a second attempt of the same rank
  EXPECT_EQ(tally.Counts().takers.at(0).syncs, 0U);
  tally.Took(From("e", 1, 2), Step(1));
  EXPECT_EQ(tally.Counts().takers.at(0).syncs, 1U);
  EXPECT_THAT(tally.Counts().takers.at(0).steps, ElementsAre(Pair("run", 1)));
  tally.Took(From("e", 0, 2), Step(2));
  tally.Took(From("e", 1, 2), Step(3));  // the first of another version
  EXPECT_THAT(tally.Counts().takers.at(0).steps, ElementsAre(Pair("run", 1)));
  tally.Took(From("e", 0, 2), Step(3));
  EXPECT_THAT(tally.Counts().takers.at(0).steps, ElementsAre(Pair("run", 3)));
}

TEST(TakerTallyTest, BytesAndRatesAreThoseOfAllRanks) {
  TakerTally tally;
  tally.Began(From("e", 0, 2));
  tally.Began(From("e", 1, 2));
  tally.Came(From("e", 0, 2), 10, 100);
  tally.Came(From("e", 1, 2), 20, 200);
  tally.Came(From("e", 0, 2), 5, 50);
  tally.Ended();
  const TakerCounts counts = tally.Counts();
  EXPECT_EQ(counts.sessions, 1U);
  EXPECT_EQ(counts.bytes, 35U);
  EXPECT_EQ(counts.takers.at(0).bytes, 35U);
  EXPECT_EQ(counts.takers.at(0).bytes_per_second, 250U);
}

TEST(TakerTallyTest, EnginesThatComeAndGoDoNotGrowIt) {
  TakerTally tally;
  for (std::size_t i = 0; i < 3 * TakerTally::kMostTakers; ++i) tally.Came(From("e" + std::to_string(i)), 1, 1);
  const TakerCounts counts = tally.Counts();
  EXPECT_EQ(counts.bytes, 3 * TakerTally::kMostTakers);
  std::set<std::size_t> numbers;
  std::set<std::string> engines;
  for (const TakerCount& taker : counts.takers) {
    EXPECT_LT(taker.number, TakerTally::kMostTakers);
    numbers.insert(taker.number);
    engines.insert(taker.engine);
  }
  EXPECT_EQ(numbers.size(), TakerTally::kMostTakers);
  EXPECT_TRUE(engines.contains("e" + std::to_string(3 * TakerTally::kMostTakers - 1))) << "the latest one";
  EXPECT_FALSE(engines.contains("e0"));
}

TEST(TakerTallyTest, NorDoLineagesAndRanks) {
  TakerTally tally;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    tally.Came(From("e", i, 5000), 1, 1);
    tally.Took(From("e", i, 5000), Step(1));
    tally.Took(From("f"), Step(i, "run" + std::to_string(i)));
  }
  EXPECT_EQ(tally.Counts().takers.at(0).bytes_per_second, TakerTally::kMostRanks);
  EXPECT_EQ(tally.Counts().takers.at(0).syncs, 0U);
  EXPECT_EQ(tally.Counts().takers.at(1).steps.size(), TakerTally::kMostLineages);
}

}  // namespace
}  // namespace layercast::testing
