// Receivers that take a snapshot's chunks from each other.
#include "src/session/relay/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <map>
#include <stop_token>

#include "layercast/error.h"
#include "src/session/ask/publisher_status.h"
#include "src/session/link/my_host.h"
#include "src/session/relay_tree/relay_desk.h"
#include "src/transport/all/transports.h"
#include "tests/support/error_of.h"
#include "tests/support/session/relaying.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

// Opens a session, number 9, with a relay by hand. Throws if the relay does not welcome it.
wire::Welcome Greeted(RawReceiver& link, const Relay::Served& served) {
  wire::Hello hello{.engine = "raw", .host = MyHost(), .lineage = kRelayedLineage, .step_known = true};
  hello.step = served.place.offer;
  link.Send(wire::Encode({.session = 9, .message = hello}));
  return std::get<wire::Welcome>(link.Receive());
}

TEST_F(RelayTest, ALateJoinerTakesEverythingFromOneThatHasFinished) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  first.Fetch(schedule_);
  first.ExpectTook(schedule_, weights_);
  EXPECT_EQ(first.relayed(), 0U);

  Taker second(*service_, copying_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), schedule_.total_bytes());
  EXPECT_EQ(second.relay_it_took_from(), first.relay->endpoint());
  EXPECT_EQ(second.stats.bytes, schedule_.total_bytes());
}

TEST_F(RelayTest, ChunksAreServedOnWhileOthersAreStillToCome) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  Taker second(*service_, copying_);
  auto taken = FetchWhileTheFirstHoldsItsFirstChunk(first, second, [] {});
  taken.get();
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), schedule_.total_bytes());
}

TEST_F(RelayTest, ThePublishersStatusTellsWhoTakesFromWhom) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  Taker second(*service_, copying_);
  wire::StatusAnswer status;
  FetchWhileTheFirstHoldsItsFirstChunk(first, second, [&] {
    status = AskPublisherStatus(service_->endpoint(), {}, Soon());
  }).get();
  std::vector<std::pair<std::string, std::string>> ends;  // takes from, relays at
  for (const wire::ReaderStatus& reader : status.versions.at(0).receivers) {
    EXPECT_EQ(reader.engine, "engine");
    ends.emplace_back(reader.takes_from, reader.relays_at);
  }
  const std::string relay = first.relay->endpoint();
  EXPECT_THAT(ends, UnorderedElementsAre(Pair("", relay), Pair(relay, "")));
}

TEST_F(RelayTest, OneThatReadsThePublishersMemoryRelaysACopy) {
  ChannelChooser attaching;
  Taker first(*service_, attaching);
  first.options.channel = "inproc";
  first.Relays(pool_);
  first.Fetch(schedule_);
  Taker second(*service_, copying_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), schedule_.total_bytes());
  Taker third(*service_, attaching);
  third.options.channel = "inproc";
  third.Fetch(schedule_);
  EXPECT_EQ(third.relayed(), 0U) << "it can read the publisher's memory too";
}

TEST_F(RelayTest, AnotherScheduleIsAnotherTree) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  first.Fetch(schedule_);
  Taker second(*service_, copying_);
  second.Fetch(SomeSchedule(true));
  second.ExpectTook(SomeSchedule(true), weights_);
  EXPECT_EQ(second.relayed(), 0U);
}

TEST_F(RelayTest, ARelayThatHasGoneOnToTheNextVersionSendsReceiversBackToThePublisher) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  first.Fetch(schedule_);
  first.relay->Clear({ErrorCode::kNotFound, "this relay takes another version now"});
  Taker second(*service_, copying_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), 0U);
}

TEST_F(RelayTest, ARelayThatDiesCostsWhatItHadNotBrought) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  first.Fetch(schedule_);
  Taker second(*service_, copying_);
  second.options.slots = 1;
  second.sink.before_chunk = [&](std::uint32_t chunk) {
    if (chunk == 0) first.relay.reset();
  };
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_GT(second.relayed(), 0U);
  EXPECT_LT(second.relayed(), schedule_.total_bytes());

  Taker third(*service_, copying_);  // nobody is sent to the dead one any more
  third.Fetch(schedule_);
  EXPECT_EQ(third.relayed(), 0U);
}

TEST_F(RelayTest, OneThatGivesUpHoldsNothingAgainstItsRelay) {
  Taker first(*service_, copying_), second(*service_, copying_), third(*service_, copying_);
  std::latch first_has_one(1), second_has_one(1), go_on(1);
  first.Relays(pool_);
  first.sink.before_chunk = [&](std::uint32_t chunk) {
    if (chunk != 0) return;
    first_has_one.count_down();
    EXPECT_TRUE(Await(go_on));
  };
  std::stop_source stop;
  second.options.stop = stop.get_token();
  second.sink.before_chunk = [&](std::uint32_t chunk) {
    if (chunk == 0) second_has_one.count_down();
  };
  auto of_first = first.FetchInBackground(schedule_);
  EXPECT_TRUE(Await(first_has_one));
  auto of_second = second.FetchInBackground(schedule_);
  EXPECT_TRUE(Await(second_has_one));
  stop.request_stop();  // while it waits for the relay
  EXPECT_THAT(ErrorOf([&] { of_second.get(); }, ErrorCode::kCancelled), HasSubstr("this attempt was given up"));
  go_on.count_down();
  of_first.get();
  third.Fetch(schedule_);
  EXPECT_EQ(third.relayed(), schedule_.total_bytes());
}

TEST_F(RelayTest, ARelayThatFailsItselfSendsItsFollowersElsewhere) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  Taker second(*service_, copying_);
  auto taken = FetchWhileTheFirstHoldsItsFirstChunk(
      first, second, [] { throw Error(ErrorCode::kInternal, "the engine's own trouble"); });
  EXPECT_THROW(taken.get(), Error);
  second.ExpectTook(schedule_, weights_);
}

TEST_F(RelayTest, OtherBytesThanThePublishersAreNotTakenFromARelay) {
  Taker first(*service_, copying_);
  first.Relays(pool_);
  first.Fetch(schedule_);
  Taker second(*service_, copying_);
  second.failpoints = FailPoints("receive.chunk=corrupt@1");
  second.Relays(pool_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), schedule_.chunks()[0].num_bytes);

  Taker third(*service_, copying_);  // and what that one serves on is right
  third.Fetch(schedule_);
  third.ExpectTook(schedule_, weights_);
  EXPECT_EQ(third.relay_it_took_from(), second.relay->endpoint());
}

TEST_F(RelayTest, SixtyFourReceiversCostThePublisherOneCopyAndAreSixStepsAwayAtMost) {
  constexpr std::size_t kReceivers = 64;
  std::vector<std::unique_ptr<Taker>> takers;
  std::latch all_joined(kReceivers);
  for (std::size_t i = 0; i < kReceivers; ++i) {
    takers.push_back(std::make_unique<Taker>(*service_, copying_));
    takers.back()->Relays(pool_);
    takers.back()->sink.before_chunk = [&](std::uint32_t chunk) {
      if (chunk != 0) return;
      all_joined.count_down();
      EXPECT_TRUE(Await(all_joined));
    };
  }
  std::vector<std::future<void>> taken;
  for (const auto& taker : takers) taken.push_back(taker->FetchInBackground(schedule_));
  for (auto& one : taken) one.get();

  std::uint64_t from_publisher = 0;
  std::map<std::string, std::string> relay_of;
  std::map<std::string, int> fed_by;
  for (const auto& taker : takers) {
    taker->ExpectTook(schedule_, weights_);
    from_publisher += taker->stats.bytes - taker->relayed();
    const std::string relay = taker->relay_it_took_from();
    relay_of[taker->relay->endpoint()] = relay;
    ++fed_by[relay];
  }
  EXPECT_EQ(from_publisher, schedule_.total_bytes());
  for (const auto& [relay, fed] : fed_by) EXPECT_LE(fed, relay.empty() ? 1 : 2) << relay;
  for (const auto& [receiver, _] : relay_of) {
    int steps = 0;
    for (std::string at = relay_of[receiver]; !at.empty(); at = relay_of[at]) ++steps;
    EXPECT_LE(steps, 6) << receiver;
  }
}

TEST_F(RelayTest, WhoeverFailsInTheMiddleAllOthersGetAllOfIt) {
  constexpr std::size_t kReceivers = 20;
  Schedule schedule;
  for (std::uint64_t chunk = 0; chunk < 30; ++chunk) {
    schedule.Add(std::vector<Region>{{.tensor = 2, .offset = chunk * 800, .row_bytes = 800, .rows = 1, .stride = 0}});
  }
  const auto fails = [](std::size_t receiver) { return receiver % 3 == 0; };
  std::vector<std::unique_ptr<Taker>> takers;
  std::latch all_joined(kReceivers);
  for (std::size_t i = 0; i < kReceivers; ++i) {
    takers.push_back(std::make_unique<Taker>(*service_, copying_));
    takers.back()->Relays(pool_);
    takers.back()->sink.before_chunk = [&, i](std::uint32_t chunk) {
      if (chunk == 0) {
        all_joined.count_down();
        EXPECT_TRUE(Await(all_joined));
      }
      if (fails(i) && chunk == i) throw Error(ErrorCode::kInternal, "the engine's own trouble");
    };
  }
  std::vector<std::future<void>> taken;
  for (const auto& taker : takers) taken.push_back(taker->FetchInBackground(schedule));
  for (std::size_t i = 0; i < kReceivers; ++i) {
    if (fails(i)) {
      EXPECT_THAT(ErrorOf([&] { taken[i].get(); }), HasSubstr("the engine's own trouble")) << i;
    } else {
      EXPECT_NO_THROW(taken[i].get()) << i;
      takers[i]->ExpectTook(schedule, weights_);
    }
  }
}

// It frees its memory while a receiver in its own process may still read it.
TEST_F(RelayTest, ByItselfARelayOffersNothingThatIsReadWhereItLiesInThisProcess) {
  Relay relay({.endpoint = "tcp://127.0.0.1:0"}, pool_, receiver_failpoints_);
  const Relay::Served served = relay.Serve(schedule_);
  RawReceiver link(served.place.endpoint);
  std::vector<std::string> offered;
  for (const wire::ChannelAddress& channel : Greeted(link, served).channels) offered.push_back(channel.name);
  EXPECT_THAT(offered, ::testing::IsSupersetOf({"shm", "zmq"}));
  EXPECT_THAT(offered, ::testing::Not(::testing::Contains("inproc")));
}

TEST_F(RelayTest, WhatARelayHasNotGotYetIsNotHandedOut) {
  Relay relay({.endpoint = "tcp://127.0.0.1:0", .channels = {"inproc"}}, pool_, receiver_failpoints_);
  const Relay::Served served = relay.Serve(schedule_);
  RawReceiver link(served.place.endpoint);
  const wire::Welcome welcome = Greeted(link, served);
  const auto transport = std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front());
  const auto end = transport->Connect(welcome.channels.at(0).address, Soon());
  const std::vector<Region> chunk = {{.tensor = 1, .offset = 0, .row_bytes = 8, .rows = 1, .stride = 0}};
  EXPECT_THAT(ErrorOf([&] {
                end->Submit({.ticket = 1, .offer_id = served.place.offer, .regions = chunk, .destination = {}});
                end->Poll(Soon());
              }),
              HasSubstr("tensor 1 is not there yet"));
}

TEST_F(RelayTest, AReceiverThatStaysDoesNotKeepWhatARelayServesNoMore) {
  Taker first(*service_, copying_);
  Relay& relay = first.Relays(pool_);
  const Relay::Served served = relay.Serve(schedule_);
  RawReceiver link(served.place.endpoint);
  const wire::Welcome welcome = Greeted(link, served);
  const auto transport = std::move(TransportsNamed(std::vector{kRelayChannel}).front());
  const auto end = transport->Connect(welcome.channels.at(0).address, Soon());
  relay.Clear({ErrorCode::kNotFound, "this relay takes another version now"});
  EXPECT_THAT(link.Refusal(), HasSubstr("is evicted"));  // it says no word of its own
  relay.Clear({ErrorCode::kNotFound, "this relay takes another version now"});
  EXPECT_THAT(ErrorOf(
                  [&] {
                    end->Submit({.ticket = 1, .offer_id = served.place.offer, .regions = {}, .destination = {}});
                    end->Poll(Soon());
                  },
                  ErrorCode::kNotFound),
              HasSubstr("offer"));
}

// A relay is not trusted: what it says may be of any length.
TEST_F(RelayTest, ARelayThatRefusesAtGreatLengthIsLostLikeAnyOther) {
  RawPublisher relay;
  RawTaker liar(*service_);
  liar.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, true, relay.endpoint(), 1});
  Taker second(*service_, copying_);
  auto taken = second.FetchInBackground(schedule_);
  const wire::Frame hello = wire::Decode(relay.ReceiveBytes());
  ::testing::internal::CaptureStderr();
  relay.Send({wire::kNewestProtocol, hello.session, wire::Refused{ErrorCode::kInternal, std::string(1U << 20, 'x')}});
  taken.get();
  EXPECT_LT(::testing::internal::GetCapturedStderr().size(), 5000U);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), 0U);
}

// To open one whose host hangs takes seconds, and no publisher's lease is renewed meanwhile.
TEST_F(RelayTest, ARelayThatWasLostWithOnePublishersPartIsNotTriedForAnothers) {
  Weights other;
  other.AddRandom({"d", DType::kBF16, {5}}, 7);
  Schedule of_other;
  of_other.Add(std::vector<Region>{{.tensor = 0, .offset = 0, .row_bytes = 10, .rows = 1, .stride = 0}});
  Schedule both = schedule_;
  both.Add(std::vector<Region>{{.tensor = 3, .offset = 0, .row_bytes = 10, .rows = 1, .stride = 0}});
  const auto first = MakeService();
  const auto second = MakeService();
  const PublishedWeights of_first(*first, weights_, "run", 3, {0, 2});
  const PublishedWeights of_second(*second, other, "run", 3, {1, 2});
  RawPublisher relay;
  RawTaker at_first(*first), at_second(*second);
  at_first.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, true, relay.endpoint(), 1});
  at_second.Send(wire::Subscribe{of_other.digest(), of_other.Encode(), {}, true, relay.endpoint(), 2});
  Taker taker({first->endpoint(), second->endpoint()}, copying_);
  auto taken = taker.FetchInBackground(both);
  const wire::Frame hello = wire::Decode(relay.ReceiveBytes());
  relay.Send({wire::kNewestProtocol, hello.session, wire::Refused{ErrorCode::kInternal, "broken"}});
  taken.get();
  EXPECT_EQ(taker.sink.collected.chunks.size(), both.chunks().size());
  EXPECT_FALSE(relay.WasGreetedAgain());
}

TEST_F(RelayTest, TheTreesThatNobodyTakesFromAreForgottenBeyondAMaximumTheOldestFirst) {
  Outbox outbox;
  RelayDesk planner(outbox);
  const auto join = [&](std::uint64_t number, std::uint64_t schedule) {
    wire::Subscribe subscribe;
    subscribe.schedule_digest = {0, schedule};
    subscribe.relay_endpoint = "tcp://relay:1";
    return planner.Join({"", number}, published_.version, "host", subscribe);
  };
  RelayTree* const in_use = join(1, 0);
  for (std::uint64_t number = 2; number <= 2 * RelayDesk::kMostTrees; ++number) {
    RelayTree* const tree = join(number, number);
    tree->Finish({"", number});
    EXPECT_LE(planner.trees(), RelayDesk::kMostTrees);
  }
  EXPECT_TRUE(in_use->StandingOf({"", 1}));
  constexpr std::uint64_t kLatest = 2 * RelayDesk::kMostTrees;
  EXPECT_TRUE(join(kLatest + 1, kLatest)->StandingOf({"", kLatest + 1}));
  EXPECT_EQ(planner.trees(), RelayDesk::kMostTrees);
}

TEST_F(RelayTest, OneWhoTakesFromNoRelayCannotLoseOne) {
  RawTaker taker(*service_);
  taker.Send(wire::RelayLost{"tcp://127.0.0.1:1", 1, "why not"});
  EXPECT_THAT(taker.Refusal(), HasSubstr("'relay_lost' of one that takes from no relay"));
}

TEST_F(RelayTest, ARelayWithoutTheChunksOfThatScheduleSaysSo) {
  Taker first(*service_, copying_);
  Relay& relay = first.Relays(pool_);
  const Relay::Served served = relay.Serve(schedule_);
  RawReceiver link(served.place.endpoint);
  (void)Greeted(link, served);
  link.Send(wire::Encode({.session = 9, .message = wire::Subscribe{SomeSchedule(true).digest(), {}, {}}}));
  EXPECT_THAT(link.Refusal(), StartsWith("the relay has the chunks of schedule "));
}

}  // namespace
}  // namespace layercast::testing
