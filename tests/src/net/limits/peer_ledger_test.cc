// What a publisher keeps of each connection: refusals, and what was sent and not taken.
#include "src/net/limits/peer_ledger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace layercast {
namespace {

constexpr std::chrono::hours kLong{1};

constexpr std::size_t kLongest = PeerLedger::kMostUntaken;

std::vector<std::byte> Half() { return std::vector<std::byte>(PeerLedger::kMostUntaken / 2 + 1); }

TEST(PeerLedger, SendsNothingOnTopOfTooMuchUntilThatIsTaken) {
  PeerLedger ledger(kLongest);
  std::optional<zmq::message_t> first = ledger.Charge("deaf", Half());
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), Half().size());
  std::optional<zmq::message_t> second = ledger.Charge("deaf", Half());
  ASSERT_TRUE(second);
  EXPECT_FALSE(ledger.Charge("deaf", Half()));
  EXPECT_TRUE(ledger.Charge("another", Half()));
  first.reset();  // as ZeroMQ does with what it has sent
  EXPECT_TRUE(ledger.Charge("deaf", Half()));
}

// As a ping is answered while a long manifest is on its way.
TEST(PeerLedger, SendsWhatFollowsALongMessage) {
  PeerLedger ledger(2 * PeerLedger::kMostUntaken);
  const std::vector<std::byte> long_one(PeerLedger::kMostUntaken + 1);
  std::optional<zmq::message_t> first = ledger.Charge("reader", long_one);
  ASSERT_TRUE(first);
  const std::optional<zmq::message_t> pong = ledger.Charge("reader", std::vector<std::byte>(20));
  EXPECT_TRUE(pong);
  EXPECT_FALSE(ledger.Charge("reader", long_one)) << "one is enough";
  first.reset();
  EXPECT_TRUE(ledger.Charge("reader", long_one));
}

TEST(PeerLedger, SendsNoMessageThatIsTooLong) {
  PeerLedger ledger(10);
  EXPECT_TRUE(ledger.Charge("reader", std::vector<std::byte>(10)));
  EXPECT_FALSE(ledger.Charge("reader", std::vector<std::byte>(11)));
}

TEST(PeerLedger, BarsOnceWhoeverIsToBeBarred) {
  PeerLedger ledger(kLongest);
  EXPECT_TRUE(ledger.Bar("deaf"));
  EXPECT_TRUE(ledger.IsBarred("deaf"));
  EXPECT_FALSE(ledger.Bar("deaf"));
  ledger.Sweep(-kLong);
  EXPECT_FALSE(ledger.IsBarred("deaf"));
}

TEST(PeerLedger, BarsWhoeverIsRefusedTooOftenUntilThatIsForgotten) {
  PeerLedger ledger(kLongest);
  for (int i = 1; i < PeerLedger::kMostRefused; ++i) EXPECT_FALSE(ledger.NoteRefused("hostile"));
  EXPECT_FALSE(ledger.IsBarred("hostile"));
  EXPECT_TRUE(ledger.NoteRefused("hostile"));
  EXPECT_FALSE(ledger.NoteRefused("hostile"));  // once
  EXPECT_TRUE(ledger.IsBarred("hostile"));
  EXPECT_FALSE(ledger.IsBarred("another"));
  ledger.Sweep(kLong);
  EXPECT_TRUE(ledger.IsBarred("hostile"));
  ledger.Sweep(-kLong);
  EXPECT_FALSE(ledger.IsBarred("hostile"));
}

TEST(PeerLedger, RemembersWhoHasMessagesUnderWay) {
  PeerLedger ledger(kLongest);
  std::optional<zmq::message_t> message = ledger.Charge("deaf", Half());
  ledger.Sweep(-kLong);
  const std::optional<zmq::message_t> second = ledger.Charge("deaf", Half());
  EXPECT_FALSE(ledger.Charge("deaf", Half()));
}

}  // namespace
}  // namespace layercast
