#include "src/net/limits/fair_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace layercast::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// From a new address each, unless it is named; all of them old.
std::vector<Handshake> Handshakes(std::uint64_t count, const std::string& address = "") {
  std::vector<Handshake> all;
  for (std::uint64_t number = 1; number <= count; ++number) {
    const std::string from = address.empty() ? "10.0.0." + std::to_string(number) : address;
    all.push_back({.number = number, .address = from, .received = 64, .age = milliseconds(60'000)});
  }
  return all;
}

TEST(HandshakesToCut, AreTheOldestOfMoreThan64) {
  EXPECT_THAT(HandshakesToCut(Handshakes(64), {}), IsEmpty());
  EXPECT_THAT(HandshakesToCut(Handshakes(67), {}), ElementsAre(1, 2, 3));
}

TEST(HandshakesToCut, AreTheOldestOfMoreThan16FromOneAddressAndNoOthers) {
  std::vector<Handshake> all = Handshakes(18, "10.0.0.1");
  all.insert(all.begin(), {.number = 0, .address = "10.0.0.2", .received = 64, .age = milliseconds(90'000)});
  EXPECT_THAT(HandshakesToCut(all, {}), ElementsAre(1, 2));
}

TEST(HandshakesToCut, AreNoneThatHaveJustBegun) {
  std::vector<Handshake> herd = Handshakes(256, "10.0.0.1");
  for (Handshake& one : herd) one.age = milliseconds(999);
  EXPECT_THAT(HandshakesToCut(herd, {}), IsEmpty());
  herd[5].received = 4097;
  EXPECT_THAT(HandshakesToCut(herd, {}), ElementsAre(6)) << "but for those that send too much";
}

Holder Holding(std::uint64_t number, const std::string& who, std::uint64_t bytes, int begun) {
  return {.number = number, .who = who, .bytes = bytes, .begun = Deadline::Clock::time_point(milliseconds(begun))};
}

TEST(HoldersToCut, AreNoneWithinTheBudget) {
  EXPECT_THAT(HoldersToCut({Holding(1, "a", 60, 0), Holding(2, "b", 40, 1)}, 100), IsEmpty());
  EXPECT_THAT(HoldersToCut({}, 0), IsEmpty());
}

TEST(HoldersToCut, AreTheFirstToHaveBegunOfWhoeverHasMost) {
  const std::vector<Holder> holders = {Holding(1, "a", 10, 5), Holding(2, "b", 60, 0), Holding(3, "a", 30, 4),
                                       Holding(4, "a", 40, 6)};
  EXPECT_THAT(HoldersToCut(holders, 130), ElementsAre(3));
  EXPECT_THAT(HoldersToCut(holders, 100), ElementsAre(3, 2)) << "then b has most";
}

TEST(HoldersToCut, AreManySmallOnesBeforeTheLargeOneOfSomebodyElse) {
  std::vector<Holder> holders = {Holding(1000, "10.0.0.9", 32 << 20, 0)};
  for (std::uint64_t number = 0; number < 1000; ++number) {
    holders.push_back(Holding(number, "10.0.0.1", 300 << 10, static_cast<int>(number)));
  }
  const std::vector<std::uint64_t> cut = HoldersToCut(holders, 256 << 20);
  EXPECT_THAT(cut, ::testing::Not(::testing::Contains(1000)));
  EXPECT_THAT(cut, SizeIs(1000 - ((256 - 32) << 20) / (300 << 10)));
}

}  // namespace
}  // namespace layercast::testing
