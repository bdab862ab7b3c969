// Relays that are there, and answer, and hold up those who take from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>
#include <variant>

#include "tests/support/session/relaying.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

class SlowRelayTest : public RelayTest {
 protected:
  // Whoever asks for the version is sent to that relay, which is said to have all of it.
  void LieAbout(const RelayPlace& relay) const {
    RawTaker liar(*service_);
    liar.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, true, relay.endpoint, relay.offer});
    while (!std::holds_alternative<wire::Subscribed>(liar.Receive())) {
    }
    liar.Send(wire::Bye{});
    liar.Send(wire::Ping{});
    EXPECT_THAT(liar.Refusal(), HasSubstr("no such session"));
  }
};

// The first stays with its first chunk until the others have all: nothing but their going elsewhere lets it go on.
TEST_F(SlowRelayTest, ARelayThatIsBusyWithItselfDelaysNobodyElse) {
  Taker first(*service_, copying_), second(*service_, copying_), third(*service_, copying_);
  for (Taker* taker : {&first, &second}) taker->Relays(pool_);
  std::latch has_one(1), others_have_all(1);
  first.sink.before_chunk = [&](std::uint32_t chunk) {
    if (chunk != 0) return;
    has_one.count_down();
    EXPECT_TRUE(Await(others_have_all));
  };
  auto taken = first.FetchInBackground(schedule_);
  EXPECT_TRUE(Await(has_one));
  auto taken_by_third = third.FetchInBackground(schedule_);
  second.Fetch(schedule_);
  taken_by_third.get();
  others_have_all.count_down();
  taken.get();
  for (Taker* taker : {&first, &second, &third}) taker->ExpectTook(schedule_, weights_);
  EXPECT_LT(second.relayed(), schedule_.total_bytes());
}

TEST_F(SlowRelayTest, ARelayThatAnswersNothingButPingsIsLeftAsASilentOneIs) {
  RawPublisher relay;
  LieAbout({relay.endpoint(), 1});
  Taker taker(*service_, copying_);
  // Far longer than from ping to ping: the publisher answers those on a busy machine, too.
  taker.options.peer_timeout = std::chrono::milliseconds(3000);
  auto taken = taker.FetchInBackground(schedule_);
  while (taken.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) {
    relay.AnswerPings(std::chrono::milliseconds(50));
  }
  taken.get();
  taker.ExpectTook(schedule_, weights_);
  EXPECT_EQ(taker.relayed(), 0U);
}

TEST_F(SlowRelayTest, ARelayThatOpensASessionAndHasNoChunkEverIsLeft) {
  Taker first(*service_, copying_);
  const Relay::Served served = first.Relays(pool_).Serve(schedule_);  // nothing comes into it
  LieAbout(served.place);
  Taker second(*service_, copying_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), 0U);
}

TEST_F(SlowRelayTest, OneWhoHasAskedForNothingCannotSayHowItGetsOn) {
  RawTaker taker(*service_);
  taker.Send(wire::Progress{.bytes = 1, .elapsed_us = 2, .waited_us = 3, .bytes_per_second = 4});
  EXPECT_THAT(taker.Refusal(), HasSubstr("'progress' of one that has asked for nothing"));
}

}  // namespace
}  // namespace layercast::testing
