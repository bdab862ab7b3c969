// The receiver's end of the control link, against a publisher that says what it likes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "src/session/link/publisher_link.h"
#include "tests/support/error_of.h"
#include "tests/support/fakes/raw_zmtp.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

wire::TensorsReady Ready(std::uint32_t sequence) {
  wire::ReadyTensor ready;
  ready.sequence = sequence;
  return {{ready}};
}

class PublisherLinkTest : public ::testing::Test {
 protected:
  PublisherLinkTest() {
    link_.Send(wire::Bye{});
    session_ = wire::Decode(publisher_.ReceiveBytes()).session;
  }
  void Say(const wire::Message& message) { publisher_.Send({.session = session_, .message = message}); }
  // Until what was said has arrived and was refused.
  std::string ErrorOfTakingIn(std::size_t most) {
    return ErrorOf([&] {
      for (const Deadline deadline = Soon(); !deadline.Passed();) link_.TakeIn(most, "waiting");
    });
  }

  RawPublisher publisher_;
  PublisherLink link_{{"publisher", publisher_.endpoint()}, Keys(), std::chrono::seconds(20)};
  std::uint64_t session_ = 0;
};

TEST_F(PublisherLinkTest, SaysHowFarAheadAPublisherMayBe) {
  Say(Ready(1));
  Say(Ready(2));
  Say(wire::StreamEnd{2, {}});
  EXPECT_THAT(ErrorOfTakingIn(2), HasSubstr("waiting: expected nothing, got 'stream_end'"));
}

TEST_F(PublisherLinkTest, KeepsWhatCameEarlyInItsOrder) {
  for (std::uint32_t i = 0; i < 3; ++i) Say(Ready(i));
  Say(wire::StreamEnd{3, {}});
  EXPECT_THAT(ErrorOfTakingIn(3), HasSubstr("'stream_end'"));  // by then the others are here
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::get<wire::TensorsReady>(link_.Expect(Soon(), "waiting")).tensors.front().sequence, i);
  }
}

TEST_F(PublisherLinkTest, TheWordsOfARefusalArePrintableAndNotEndless) {
  Say(wire::Refused{ErrorCode::kNotFound, "\x1b[31m" + std::string(100'000, 'x')});
  const std::string said = ErrorOfTakingIn(1);
  EXPECT_THAT(said, HasSubstr("waiting: \\x1b[31mxxx"));
  EXPECT_LT(said.size(), 20'000U);
}

TEST_F(PublisherLinkTest, NamesThatAreNoneAreCorrupt) {
  wire::Welcome welcome;
  welcome.channels = {{"zmq", std::string(60'000, 'x')}};
  Say(welcome);
  EXPECT_THAT(ErrorOf([&] { (void)link_.Expect(Soon(), "waiting"); }, ErrorCode::kCorrupt),
              HasSubstr("channel address 'xxx"));
  Say(wire::FetchFrom{"tcp://\n", 1});
  EXPECT_THAT(ErrorOf([&] { (void)link_.Expect(Soon(), "waiting"); }, ErrorCode::kCorrupt),
              HasSubstr("relay 'tcp://\\x0a'"));
}

TEST_F(PublisherLinkTest, ARefusalIsHeardAtOnceWhateverCameBeforeIt) {
  Say(Ready(1));
  Say(wire::Refused{.code = ErrorCode::kNotFound, .message = "it was evicted"});
  EXPECT_THAT(ErrorOfTakingIn(5), HasSubstr("waiting: it was evicted"));
}

TEST_F(PublisherLinkTest, PongsAndObsoleteSessionsAreNoMessages) {
  for (int i = 0; i < 300; ++i) Say(wire::Pong{});
  publisher_.Send({.session = session_ + 1, .message = wire::StreamEnd{9, {}}});
  Say(wire::StreamEnd{1, {}});
  EXPECT_EQ(std::get<wire::StreamEnd>(link_.Expect(Soon(), "waiting")).tensors, 1U);
}

TEST_F(PublisherLinkTest, SaysHowManyBytesAPublisherMayBeAhead) {
  wire::MoreDigests large;
  large.chunk_digests.resize((16 << 20) / sizeof(Digest));
  for (int i = 0; i < 5; ++i) Say(large);
  EXPECT_THAT(ErrorOfTakingIn(1000),
              HasSubstr("waiting: expected at most 67108864 bytes before any is asked for, got 'more_digests'"));
}

TEST(PublisherLinkAlone, APublisherThatIsGoneIsNoticedAtOnceAfterWhatItSaid) {
  std::optional<RawPublisher> publisher(std::in_place);
  PublisherLink link({"publisher", publisher->endpoint()}, Keys(), std::chrono::hours(1));
  link.Send(wire::Bye{});
  const std::uint64_t session = wire::Decode(publisher->ReceiveBytes()).session;
  publisher->Send({.session = session, .message = Ready(1)});
  EXPECT_EQ(std::get<wire::TensorsReady>(link.Expect(Soon(), "waiting")).tensors.front().sequence, 1U);
  publisher.reset();
  EXPECT_THAT(ErrorOf([&] { (void)link.Expect(Soon(), "waiting"); }, ErrorCode::kUnavailable),
              HasSubstr("the connection was lost, waiting"));
}

TEST(PublisherLinkAlone, WhatWasSaidOverAConnectionThatEndedUnheardIsSaidAgainOnce) {
  RawPublisher publisher;
  PublisherLink link({"publisher", publisher.endpoint()}, Keys(), std::chrono::hours(1));
  wire::Hello hello;
  hello.engine = "engine";
  link.Send(hello);
  const std::uint64_t session = wire::Decode(publisher.ReceiveBytes()).session;
  publisher.Cut();
  auto answered = std::async(std::launch::async, [&] {
    for (int ping = 0; ping < 2; ++ping) {  // both are on their way before the first is answered
      publisher.AwaitPing();
    }
    const wire::Refused unknown{ErrorCode::kFailedPrecondition, "no such session"};
    for (int ping = 0; ping < 2; ++ping) publisher.Send({.session = session, .message = unknown});
    const wire::Message again = wire::Decode(publisher.ReceiveBytes()).message;
    publisher.Send({.session = session, .message = Ready(1)});
    publisher.Send({.session = session, .message = unknown});  // which is meant
    return std::holds_alternative<wire::Hello>(again);
  });
  EXPECT_EQ(std::get<wire::TensorsReady>(link.Expect(Soon(), "waiting")).tensors.front().sequence, 1U);
  EXPECT_TRUE(answered.get());
  EXPECT_THAT(ErrorOf([&] { (void)link.Expect(Soon(), "waiting"); }, ErrorCode::kFailedPrecondition),
              HasSubstr("waiting: no such session"));
  EXPECT_FALSE(publisher.WasGreetedAgain());
}

TEST(PublisherLinkAlone, OneThatWasStartedAnewAtTheSameEndpointIsNotThePublisherOfThisSession) {
  std::optional<RawPublisher> publisher(std::in_place);
  const std::string endpoint = publisher->endpoint();
  PublisherLink link({"publisher", endpoint}, Keys(), std::chrono::hours(1));
  link.Send(wire::Bye{});
  const std::uint64_t session = wire::Decode(publisher->ReceiveBytes()).session;
  publisher->Send({.session = session, .message = wire::Pong{}});
  publisher->Send({.session = session, .message = Ready(1)});
  EXPECT_EQ(std::get<wire::TensorsReady>(link.Expect(Soon(), "waiting")).tensors.front().sequence, 1U);
  publisher.reset();
  publisher.emplace(/*most_unsent=*/1, endpoint);
  auto heard = std::async(std::launch::async, [&] { (void)publisher->ReceiveBytes(); });
  while (heard.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) link.Send(wire::Bye{});
  heard.get();
  publisher->Send({.session = session, .message = wire::Refused{ErrorCode::kFailedPrecondition, "no such session"}});
  wire::MoreDigests large;  // once no more of these are taken, the refusal is there
  large.chunk_digests.resize((8 << 20) / sizeof(Digest));
  const wire::Frame frame{.session = session, .message = large};
  while (publisher->SendWithin(frame, std::chrono::milliseconds(300))) {
  }
  EXPECT_THAT(ErrorOf([&] { (void)link.Expect(Soon(), "waiting"); }, ErrorCode::kUnavailable),
              HasSubstr("the connection was lost, waiting"));
}

TEST(PublisherLinkAlone, APongThatWasOnItsWayBeforeItIsAskedSaysNothingOfNow) {
  RawPublisher publisher;
  PublisherLink link({"publisher", publisher.endpoint()}, Keys(), std::chrono::milliseconds(1200));
  link.Send(wire::Bye{});
  const std::uint64_t session = wire::Decode(publisher.ReceiveBytes()).session;
  const auto answered = std::async(std::launch::async, [&] { publisher.AwaitPing(); });
  EXPECT_EQ(link.Receive(Deadline::After(std::chrono::milliseconds(700)), "waiting"), std::nullopt);  // it pings
  answered.wait();
  publisher.Send({.session = session, .message = wire::Pong{}});
  EXPECT_THAT(ErrorOf([&] { link.ExpectAlive(Soon(), "asking"); }, ErrorCode::kUnavailable),
              HasSubstr("was silent for 1200 ms, asking"));
}

TEST(PublisherLinkAlone, MayWaitForSilenceForEver) {
  RawPublisher publisher;
  PublisherLink link({"publisher", publisher.endpoint()}, Keys(), std::chrono::milliseconds::max());
  const auto expect = [&] { (void)link.Expect(Deadline::After(std::chrono::milliseconds(1)), "waiting"); };
  EXPECT_THAT(ErrorOf(expect, ErrorCode::kDeadlineExceeded), HasSubstr("no answer before the deadline"));
}

TEST(PublisherLinkAlone, LargeMessagesThatItDoesNotTakeStayWithThePublisher) {
  RawPublisher publisher(/*most_unsent=*/1);
  PublisherLink link({"publisher", publisher.endpoint()}, Keys(), std::chrono::seconds(20));
  link.Send(wire::Bye{});
  wire::MoreDigests large;
  large.chunk_digests.resize((8 << 20) / sizeof(Digest));
  const wire::Frame frame{.session = wire::Decode(publisher.ReceiveBytes()).session, .message = large};
  int sent = 0;
  while (sent < 30 && publisher.SendWithin(frame, std::chrono::milliseconds(300))) ++sent;
  EXPECT_LT(sent, 15);  // two of them, what is on its way to be the third, and what the system's buffers hold
}

TEST(PublisherLinkAlone, AMessageWithoutAnEndIsRefused) {
  const RawZmtpServer::Listener listener;
  const auto cut = std::async(std::launch::async, [&] { return RawZmtpServer(listener).IsCut(); });
  PublisherLink link({"publisher", listener.endpoint()}, Keys(), std::chrono::seconds(20));
  EXPECT_THAT(ErrorOf([&] { link.Expect(Soon(), "waiting"); }), HasSubstr("waiting: a message has not ended within"));
}

TEST(PublisherLinkAlone, APublisherWhoseMessageIsStillOnItsWayIsNotSilent) {
  const RawZmtpServer::Listener listener;
  const auto said = std::async(std::launch::async, [&] {
    RawZmtpServer(listener).SendSlowly("it is no frame of ours",
                                       5);  // no pong comes before it, and a byte for each ping
  });
  PublisherLink link({"publisher", listener.endpoint()}, Keys(), std::chrono::milliseconds(1200));
  EXPECT_THAT(ErrorOf([&] { link.Expect(Soon(), "waiting"); }), HasSubstr("frame: "));
}

TEST_F(PublisherLinkTest, ASubscriptionThatIsTooLargeIsNamed) {
  wire::Subscribe subscribe;
  subscribe.schedule.resize(wire::kMaxAskBytes);
  EXPECT_THAT(ErrorOf([&] { link_.Send(subscribe); }), HasSubstr("'subscribe' has 335544"));
}

TEST_F(PublisherLinkTest, AProtocolThatItDoesNotSpeakIsRefused) {
  wire::Welcome welcome;
  welcome.protocol = 1;
  Say(welcome);
  EXPECT_THAT(ErrorOf([&] { (void)link_.Greet({}, Soon()); }), HasSubstr("chose protocol 1, expected 3 to 3"));
}

}  // namespace
}  // namespace layercast::testing
