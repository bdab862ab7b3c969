// Receivers that break the protocol: it costs them their session, and nobody else anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <latch>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/net/limits/peer_ledger.h"
#include "src/wire/frames.h"
#include "tests/fuzz/damage.h"
#include "tests/support/fakes/raw_zmtp.h"
#include "tests/support/session/other_transport.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"
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
  const wire::Message first = answer(1, 1);  // which no release spoke
  EXPECT_EQ(std::get<wire::Refused>(first).code, ErrorCode::kUnsupported);
  EXPECT_EQ(std::get<wire::Refused>(first).message,
            "no common protocol: the publisher speaks 3 to 3, the receiver 1 to 1");
}

TEST_F(HostileReceiverTest, AMessageWithoutAnEndCostsItsSenderTheConnection) {
  const auto service = MakeService();
  const Weights weights = SomeWeights();
  const PublishedWeights published(*service, weights, "run", 1);
  EXPECT_TRUE(RawZmtp::Connect(service->endpoint()).IsCut());
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
  EXPECT_THAT(refusal(schedule, {{.tensor = 3}}), HasSubstr("magnitudes of tensor 3: there is no such tensor"));
  ExpectServiceWorks(*service, SomeWeights());
}

TEST_F(HostileReceiverTest, SessionsAreBounded) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 1);
  std::vector<std::unique_ptr<RawReceiver>> receivers;
  for (int i = 0; i < 8; ++i) {
    receivers.push_back(std::make_unique<RawReceiver>(service->endpoint()));
    receivers.back()->Send(wire::Hello{});
    EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receivers.back()->Receive()));
  }
  RawReceiver one_more(service->endpoint());
  one_more.Send(wire::Hello{});
  EXPECT_THAT(one_more.Refusal(), HasSubstr("8 sessions"));
}

TEST_F(HostileReceiverTest, OneConnectionCannotTakeAllSessions) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();  // 8 sessions
  const PublishedWeights published(*service, weights, "run", 1);
  RawReceiver receiver(service->endpoint());
  std::string refusal;
  for (std::uint64_t session = 0; session < 9; ++session) {
    receiver.Send(wire::Encode({.session = session, .message = wire::Hello{}}));
    const wire::Message answer = receiver.Receive();
    if (const auto* refused = std::get_if<wire::Refused>(&answer)) refusal = refused->message;
  }
  EXPECT_THAT(refusal, HasSubstr("this connection has 4 sessions"));
  ExpectServiceWorks(*service, weights);
}

// Sends what it likes and reads nothing, until it is cut.
class DeafReceiver : public RawZmtp {
 public:
  explicit DeafReceiver(const std::string& endpoint) : RawZmtp(Connect(endpoint)) {}
  void Say(std::uint64_t session, const wire::Message& message) {
    const std::vector<std::byte> bytes = wire::Encode({.session = session, .message = message});
    Say(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void Say(const std::string& bytes) { Send(Frame(0, bytes)); }
};

TEST_F(HostileReceiverTest, WhoseMessagesAreRefusedAgainAndAgainLosesItsConnection) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 1);
  DeafReceiver receiver(service->endpoint());
  receiver.Say(1, wire::Hello{});
  for (int i = 0; i < PeerLedger::kMostRefused; ++i) receiver.Say("garbage");
  receiver.ReadToTheEnd();
  EXPECT_EQ(published.version->readers(), 0);  // its session ended with it
  ExpectServiceWorks(*service, weights);
}

TEST_F(HostileReceiverTest, WhatAReceiverDoesNotReadIsNotKeptForIt) {
  const auto service = MakeService();
  Weights weights;  // whose manifest has a megabyte
  for (int i = 0; i < 1000; ++i) weights.AddRandom({std::to_string(i) + std::string(1000, 'x'), DType::kBF16, {1}}, 1);
  const PublishedWeights published(*service, weights, "run", 1);
  const std::size_t welcome = published.version->encoded_manifest().size();
  constexpr std::size_t kWelcomes = 150;
  ASSERT_GT(welcome * kWelcomes, 3 * PeerLedger::kMostUntaken);
  DeafReceiver receiver(service->endpoint());
  const auto await_readers = [&](bool any) {
    for (const Deadline deadline = Soon(); (published.version->readers() != 0) != any && !deadline.Passed();) {
      std::this_thread::yield();
    }
  };
  receiver.Say(0, wire::Hello{});  // a session that stays until the connection is ended
  await_readers(true);
  for (std::uint64_t session = 1; session <= kWelcomes; ++session) {
    receiver.Say(session, wire::Hello{});
    receiver.Say(session, wire::Bye{});
  }
  for (int i = 0; i < PeerLedger::kMostRefused; ++i) receiver.Say("garbage");
  await_readers(false);
  // What the system's buffers have of it comes on top.
  EXPECT_LT(receiver.ReadToTheEnd(), 2 * PeerLedger::kMostUntaken);
}

// Its publisher's thread does nothing else while it is asked for its address.
class StallingInproc final : public OtherTransport {
 public:
  StallingInproc(std::latch& stalled, std::latch& go_on) : stalled_(stalled), go_on_(go_on) {}
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return std::make_unique<End>(honest_->Offering(options), stalled_, go_on_);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return honest_->Connect(address, deadline);
  }

 private:
  class End final : public OfferingEnd {
   public:
    End(std::unique_ptr<OfferingEnd> honest, std::latch& stalled, std::latch& go_on)
        : honest_(std::move(honest)), stalled_(stalled), go_on_(go_on) {}
    std::string address() const override {
      if (!stalled_.try_wait()) {
        stalled_.count_down();
        go_on_.wait();
      }
      return honest_->address();
    }
    void Add(const Offer& offer) override { honest_->Add(offer); }
    void Remove(std::uint64_t offer_id) override { honest_->Remove(offer_id); }

   private:
    const std::unique_ptr<OfferingEnd> honest_;
    std::latch& stalled_;
    std::latch& go_on_;
  };
  std::latch& stalled_;
  std::latch& go_on_;
};

TEST_F(HostileReceiverTest, LargeMessagesThatCannotBeTakenStayWithTheirSender) {
  const Weights weights = SomeWeights();
  std::latch stalled(1), go_on(1);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<StallingInproc>(stalled, go_on));
  OfferService service({.endpoint = "tcp://127.0.0.1:0", .name = "publisher"}, pool_, publisher_failpoints_, nullptr,
                       std::move(transports));
  const PublishedWeights published(service, weights, "run", 1);
  RawReceiver receiver(service.endpoint());
  receiver.Send(wire::Hello{});
  stalled.wait();
  RawReceiver hostile(service.endpoint(), /*most_unsent=*/1);
  wire::Subscribe subscribe;
  subscribe.schedule.resize(8 << 20);
  const std::vector<std::byte> large = wire::Encode({.session = 5, .message = subscribe});
  int sent = 0;
  while (sent < 30 && hostile.SendWithin(large, std::chrono::milliseconds(300))) ++sent;
  go_on.count_down();
  EXPECT_LT(sent, 15);  // two of them, what is on its way to be the third, and what the system's buffers hold
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receiver.Receive()));
  ExpectServiceWorks(service, weights);
  service.Stop();  // it may still digest what is published
}

TEST_F(HostileReceiverTest, AFloodOfLargeMessagesKeepsNobodyElseWaiting) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 1);
  const auto flood = [&](const std::stop_token& stop) {
    RawReceiver hostile(service->endpoint(), /*most_unsent=*/1);
    Schedule schedule;
    for (std::uint64_t i = 0; i < 200'000; ++i) {
      schedule.Add(std::vector<Region>{{.tensor = 0, .offset = i, .row_bytes = 1, .rows = 1, .stride = 0}});
    }
    const wire::Subscribe subscribe{.schedule_digest = {1, 2}, .schedule = schedule.Encode(), .amax_requests = {}};
    const std::vector<std::byte> hello = wire::Encode({.session = 5, .message = wire::Hello{}});
    const std::vector<std::byte> large = wire::Encode({.session = 5, .message = subscribe});
    while (!stop.stop_requested()) {
      hostile.SendWithin(hello, std::chrono::milliseconds(100));
      hostile.SendWithin(large, std::chrono::milliseconds(100));
    }
  };
  std::vector<std::jthread> floods;
  for (int i = 0; i < 3; ++i) floods.emplace_back(flood);
  for (int i = 0; i < 5; ++i) ExpectServiceWorks(*service, weights);
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
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(receiver.Receive()));  // its lease may be over by now
  service->Withdraw(published.version);
  EXPECT_TRUE(published.version->WaitReleased(Soon()));  // without a word from the receiver
}

TEST_F(HostileReceiverTest, DamagedFramesCostOnlyTheirSender) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
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
