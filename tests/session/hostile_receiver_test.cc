// Receivers that break the protocol: it costs them their session, and nobody else anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "src/wire/frames.h"
#include "tests/fuzz/damage.h"
#include "tests/session/publishing.h"
#include "tests/session/raw_peers.h"
#include "tests/support/raw_zmtp.h"
#include "tests/support/signals.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

class HostileReceiverTest : public SessionTest {
 protected:
  void ExpectServiceWorks(const OfferService& service, const Weights& weights) {
    const Schedule schedule = SomeSchedule(false);
    CollectingSink sink;
    Open(service)->Fetch(schedule, {}, sink, Soon());
    EXPECT_EQ(sink.chunks[1], BytesOf(schedule, weights)[1]);
  }
};

TEST_F(HostileReceiverTest, ProtocolsThatDoNotMeetAreRefusedWithBothRanges) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 1);
  const auto answer = [&](std::uint16_t oldest, std::uint16_t newest) {
    RawReceiver receiver(service->endpoint());
    wire::Hello hello;
    hello.oldest_protocol = oldest;
    hello.newest_protocol = newest;
    receiver.Send(hello);
    return receiver.Receive();
  };
  const std::uint16_t ours = wire::kNewestProtocol;
  // Receivers of other releases that still speak ours.
  for (const auto& [oldest, newest] : {std::pair(ours - 1, ours + 0), std::pair(ours + 0, ours + 1)}) {
    const wire::Message message = answer(static_cast<std::uint16_t>(oldest), static_cast<std::uint16_t>(newest));
    ASSERT_TRUE(std::holds_alternative<wire::Welcome>(message)) << oldest << " to " << newest;
    EXPECT_EQ(std::get<wire::Welcome>(message).protocol, std::min<int>(newest, ours));
  }
  const wire::Message refused = answer(static_cast<std::uint16_t>(ours + 1), static_cast<std::uint16_t>(ours + 2));
  EXPECT_THAT(std::get<wire::Refused>(refused).message, HasSubstr("no common protocol"));
}

TEST_F(HostileReceiverTest, AMessageWithoutAnEndCostsItsSenderTheConnection) {
  const auto service = MakeService();
  const Weights weights = SomeWeights();
  const PublishedWeights published(*service, weights, "run", 1);
  EXPECT_TRUE(RawZmtp::Connect(service->endpoint()).IsCutWithin(256 << 20));
  ExpectServiceWorks(*service, weights);
}

TEST_F(HostileReceiverTest, MessagesOutOfTurnAreRefusedByName) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 1);
  RawReceiver receiver(service->endpoint());
  receiver.Send(wire::Subscribe{});
  EXPECT_THAT(receiver.Refusal(), HasSubstr("no such session"));
  receiver.Send(wire::Hello{});
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receiver.Receive()));
  receiver.Send(wire::Hello{});
  EXPECT_THAT(receiver.Refusal(), HasSubstr("'hello' twice"));
  receiver.Send(wire::Hello{});
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receiver.Receive()));
  receiver.Send(wire::Welcome{});
  EXPECT_THAT(receiver.Refusal(), HasSubstr("never sends 'welcome'"));
}

TEST_F(HostileReceiverTest, AScheduleThatIsNotTheOneOfItsDigestIsRefused) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 1);
  RawReceiver receiver(service->endpoint());
  receiver.Send(wire::Hello{});
  receiver.Receive();
  receiver.Send(
      wire::Subscribe{.schedule_digest = {1, 2}, .schedule = SomeSchedule(false).Encode(), .amax_requests = {}});
  EXPECT_THAT(receiver.Refusal(), HasSubstr("digest expected"));
}

// A subscription of a few bytes is an order to read the version.
TEST_F(HostileReceiverTest, WhatASessionMayAskForIsBounded) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 1);  // 24 778 bytes
  RawReceiver receiver(service->endpoint());
  const auto refusal = [&](const Schedule& schedule, std::vector<AmaxRequest> requests) {
    receiver.Send(wire::Hello{});
    receiver.Receive();
    receiver.Send(wire::Subscribe{
        .schedule_digest = schedule.digest(), .schedule = schedule.Encode(), .amax_requests = std::move(requests)});
    return receiver.Refusal();
  };
  Schedule greedy;
  const Region c{.tensor = 2, .offset = 0, .row_bytes = 24'000, .rows = 1, .stride = 0};
  for (int i = 0; i < 17; ++i) greedy.Add({{c}});
  EXPECT_THAT(refusal(greedy, {}),
              HasSubstr("the schedule asks for 408000 bytes, expected at most 396448: 16 times the "
                        "version's 24778"));
  const Schedule schedule = SomeSchedule(false);
  EXPECT_THAT(refusal(schedule, {{.tensor = 2}, {.tensor = 2}}),
              HasSubstr("magnitudes of tensor 'c': expected to be asked for them once, got it twice"));
  EXPECT_THAT(
      refusal(schedule, {{.tensor = 2, .read_as = {12'000, 1}}}),
      HasSubstr("magnitudes: expected at most as many bytes of them as the version has (24778), got 48000 up to "
                "tensor 'c'"));
  EXPECT_THAT(refusal(schedule, {{.tensor = 3}}), HasSubstr("magnitudes of tensor 3: there is no such tensor"));
  ExpectServiceWorks(*service, SomeWeights());
}

TEST_F(HostileReceiverTest, SessionsAreBounded) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 1);
  RawReceiver receiver(service->endpoint());
  std::string refusal;
  for (std::uint64_t session = 0; session < 9; ++session) {
    receiver.Send(wire::Encode({.session = session, .message = wire::Hello{}}));
    const wire::Message answer = receiver.Receive();
    if (const auto* refused = std::get_if<wire::Refused>(&answer)) refusal = refused->message;
  }
  EXPECT_THAT(refusal, HasSubstr("8 sessions"));
}

TEST_F(HostileReceiverTest, ASignalThatAHandlerTakesDoesNotEndThePublishersThread) {
  const Interruptions signals;
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 1);
  Interruptions::InterruptWaiting("lc-offer");
  RawReceiver receiver(service->endpoint());
  receiver.Send(wire::Hello{});
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receiver.Receive()));
}

TEST_F(HostileReceiverTest, ASilentReceiverLosesItsLease) {
  const auto service = MakeService(1U << 20, std::chrono::milliseconds(10));
  const PublishedWeights published(*service, SomeWeights(), "run", 1);
  RawReceiver receiver(service->endpoint());
  receiver.Send(wire::Hello{});
  receiver.Receive();
  EXPECT_EQ(published.version->readers(), 1);
  service->Withdraw(published.version);
  EXPECT_TRUE(published.version->WaitReleased(Soon()));  // without a word from the receiver
}

TEST_F(HostileReceiverTest, DamagedFramesCostOnlyTheirSender) {
  const Weights weights = SomeWeights();
  // Some of what is damaged is still a hello, of yet another session.
  const auto service = MakeService(1U << 20, std::chrono::milliseconds(5000), 2000);
  const PublishedWeights published(*service, weights, "run", 1);
  const std::vector<std::byte> good = wire::Encode({.session = 5, .message = wire::Hello{}});
  Damage damage(11, std::string_view("\x00\x01\xff", 3));
  RawReceiver receiver(service->endpoint());
  const std::string text(reinterpret_cast<const char*>(good.data()), good.size());
  for (int round = 0; round < 500; ++round) {
    const std::string damaged = damage.Apply(text);
    const auto* bytes = reinterpret_cast<const std::byte*>(damaged.data());
    receiver.Send(std::vector<std::byte>(bytes, bytes + damaged.size()));
  }
  ExpectServiceWorks(*service, weights);
}

}  // namespace
}  // namespace layercast::testing
