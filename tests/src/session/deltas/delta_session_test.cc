// Snapshots that come as deltas of what a receiver keeps: over every channel, at every density, and what happens where
// there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/session/link/my_host.h"
#include "tests/support/channels_here.h"
#include "tests/support/error_of.h"
#include "tests/support/session/keeping.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class DeltaOverChannelTest : public DeltaSessionTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(DeltaOverChannelTest, BringsEveryVersionWhateverHasChanged) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, GetParam());
  const Weights* last = &Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  keeper.ExpectTook(schedule_, *last);
  EXPECT_FALSE(keeper.choice().taken);
  EXPECT_THAT(keeper.choice().why, HasSubstr("nothing is kept yet"));
  std::uint64_t step = 1;
  for (const int per_mille : {10, 0, 1, 100, 500, 1000, 10}) {
    const Version base = keeper.options.base->parts.front().version;
    last = &Publish(service, Changed(*last, per_mille, random_), ++step);
    keeper.Fetch(schedule_);
    keeper.ExpectTook(schedule_, *last);
    EXPECT_TRUE(keeper.choice().taken) << keeper.choice().why;
    EXPECT_EQ(keeper.choice().base, base);
    EXPECT_EQ(keeper.choice().dense_bytes, schedule_.total_bytes());
    EXPECT_EQ(keeper.stats.bytes, keeper.choice().encoded_bytes);
    EXPECT_EQ(keeper.stats.publishers.front().bytes, keeper.choice().encoded_bytes);
    if (per_mille <= 10) {
      EXPECT_LT(keeper.choice().encoded_bytes, schedule_.total_bytes() / 5) << per_mille;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OverEveryChannel, DeltaOverChannelTest, ::testing::ValuesIn(ChannelsHere()),
                         [](const auto& channel) { return channel.param; });

TEST_F(DeltaSessionTest, AfterManyDeltasOfSomeStepsTheBytesAreThoseOfTheVersion) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "inproc");
  const Weights* last = &Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  constexpr int kDensities[] = {0, 1, 5, 10, 30, 100, 300, 1000};
  std::uint64_t step = 1;
  std::size_t oldest = 0;
  for (int delta = 0; delta < 400; ++delta) {
    for (std::size_t steps = 1 + random_() % 3; steps > 0; --steps) {  // the receiver is that many behind
      last = &Publish(service, Changed(*last, kDensities[random_() % std::size(kDensities)], random_), ++step);
    }
    keeper.Fetch(schedule_);
    ASSERT_TRUE(keeper.choice().taken) << keeper.choice().why;
    keeper.ExpectTook(schedule_, *last);
    ASSERT_FALSE(HasFailure()) << "delta " << delta;
    for (; oldest + 1 < published_.size(); ++oldest) Withdraw(service, oldest);  // all but what is kept
  }
}

TEST_F(DeltaSessionTest, SeveralPublishersEachSendWhatChangedInTheirParts) {
  OfferService& one = Start();
  OfferService& other = Start();
  Keeper keeper({one.endpoint(), other.endpoint()}, channels_, "zmq");
  Schedule both;
  for (const Chunk& chunk : schedule_.chunks()) {
    std::vector<Region> regions(schedule_.RegionsOf(chunk).begin(), schedule_.RegionsOf(chunk).end());
    const std::size_t of_one = regions.size();
    for (std::size_t i = 0; i < of_one; ++i) {
      regions.push_back(regions[i]);
      regions.back().tensor += 3;  // the other's
    }
    both.Add(regions);
  }
  Weights first = SomeWeights(1);
  Weights second = SomeWeights(20);
  for (std::uint64_t step = 1; step < 4; ++step) {
    published_.push_back(std::make_unique<PublishedWeights>(one, first, "run", step, VersionPart{0, 2}));
    published_.push_back(std::make_unique<PublishedWeights>(other, second, "run", step, VersionPart{1, 2}));
    keeper.Fetch(both);
    EXPECT_EQ(keeper.choice().taken, step > 1) << keeper.choice().why;
    const auto of_first = BytesOf(schedule_, first);
    const auto of_second = BytesOf(schedule_, second);
    for (std::uint32_t i = 0; i < of_first.size(); ++i) {
      std::vector<std::byte> expected = of_first[i];
      expected.insert(expected.end(), of_second[i].begin(), of_second[i].end());
      EXPECT_EQ(keeper.sink.chunks.at(i), expected) << i;
    }
    first = Changed(first, 10, random_);
    second = Changed(second, 10, random_);
  }
}

TEST_F(DeltaSessionTest, WithoutABaseAtThePublisherTheVersionComesDense) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "zmq");
  const Weights& first = Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  const Weights& second = Publish(service, Changed(first, 10, random_), 2);
  Withdraw(service, 0);
  keeper.Fetch(schedule_);
  keeper.ExpectTook(schedule_, second);
  EXPECT_FALSE(keeper.choice().taken);
  EXPECT_THAT(keeper.choice().why, AllOf(StartsWith("the publisher does not keep run@1:"), HasSubstr("any more")));
  EXPECT_EQ(keeper.stats.bytes, schedule_.total_bytes());
  const Weights& third = Publish(service, Changed(second, 10, random_), 3);
  keeper.Fetch(schedule_);  // what came dense is kept too
  keeper.ExpectTook(schedule_, third);
  EXPECT_TRUE(keeper.choice().taken) << keeper.choice().why;
}

TEST_F(DeltaSessionTest, AVersionOfTheSameNameAndOtherBytesIsNoBase) {
  OfferService& earlier = Start();
  Publish(earlier, SomeWeights(), 1);
  Keeper keeper(earlier, channels_, "zmq");
  keeper.Fetch(schedule_);
  OfferService& later = Start();  // another run, that was started from other weights
  Keeper there(later, channels_, "zmq");
  there.options.base = keeper.options.base;
  Publish(later, SomeWeights(70), 1);
  const Weights& next = Publish(later, SomeWeights(71), 2);
  there.Fetch(schedule_);
  there.ExpectTook(schedule_, next);
  EXPECT_FALSE(there.choice().taken);
  EXPECT_THAT(there.choice().why, HasSubstr("does not keep"));
}

TEST_F(DeltaSessionTest, AnotherScheduleOrAScheduleThatIsForgottenComesDense) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "zmq");
  const Weights& first = Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  const Schedule other = SomeSchedule(true);  // the same regions in other chunks
  const Weights& second = Publish(service, Changed(first, 10, random_), 2);
  keeper.Fetch(other);
  keeper.ExpectTook(other, second);
  EXPECT_THAT(keeper.choice().why, HasSubstr("by another schedule than run@1"));

  OfferService& restarted = Start();  // with what it had in its store
  Keeper again(restarted, channels_, "zmq");
  again.options.base = keeper.options.base;
  Publish(restarted, second, 2);
  const Weights& third = Publish(restarted, Changed(second, 10, random_), 3);
  again.Fetch(other);
  again.ExpectTook(other, third);
  EXPECT_FALSE(again.choice().taken);
  EXPECT_EQ(again.choice().why, "the publisher does not know the schedule any more");
}

TEST_F(DeltaSessionTest, StreamsComeDenseAndAreNotKept) {
  OfferService& service = Start();
  const Weights& weights = weights_.emplace_back(SomeWeights());
  const auto walk = [&weights](std::span<const std::string>) { return weights.Stream(); };
  service.Offer(std::make_shared<OfferedVersion>(weights.ToManifest(), walk, false));
  Keeper keeper(service, channels_, "zmq");
  keeper.Fetch(SomeSchedule(true));
  EXPECT_EQ(keeper.choice().why, "a stream comes dense");
  EXPECT_EQ(keeper.options.base, nullptr);
}

TEST_F(DeltaSessionTest, WhoKeepsNothingIsToldNothingOfDeltas) {
  OfferService& service = Start();
  Publish(service, SomeWeights(), 1);
  Keeper keeper(service, channels_, "zmq");
  keeper.options.into.source = nullptr;
  keeper.Fetch(schedule_);
  EXPECT_FALSE(keeper.stats.delta.has_value());
  EXPECT_EQ(keeper.options.base, nullptr);
}

TEST_F(DeltaSessionTest, ByItselfAReceiverTakesNoDeltaOfWhatItCanReadInPlace) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "inproc");
  keeper.options.delta = DeltaUse::kAuto;
  const Weights& first = Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  Publish(service, Changed(first, 1, random_), 2);
  keeper.Fetch(schedule_);
  EXPECT_FALSE(keeper.choice().taken);
  EXPECT_THAT(keeper.choice().why, HasSubstr("hands out the publisher's memory"));
}

// A receiver that asks for deltas by hand.
class RawAsker {
 public:
  explicit RawAsker(const OfferService& service) : link_(service.endpoint()) {
    wire::Hello hello;
    hello.engine = "raw";
    hello.host = MyHost();
    link_.Send(wire::Message(hello));
    EXPECT_TRUE(std::holds_alternative<wire::Welcome>(link_.Receive()));
  }
  void Send(const Version& base, const Schedule& schedule, std::uint64_t most_bytes) {
    link_.Send(wire::Message(wire::AskDelta{base.lineage, base.step, base.digest, schedule.digest(), most_bytes}));
  }
  wire::Delta Ask(const Version& base, const Schedule& schedule, std::uint64_t most_bytes = ~std::uint64_t{0}) {
    Send(base, schedule, most_bytes);
    return std::get<wire::Delta>(link_.Receive());
  }
  std::string Refusal() { return link_.Refusal(); }

 private:
  RawReceiver link_;
};

TEST_F(DeltaSessionTest, ReceiversWithOneScheduleShareOneEncoding) {
  OfferService& service = Start();
  const Weights& first = Publish(service, SomeWeights(), 1);
  Keeper keeper(service, channels_, "zmq");
  keeper.Fetch(schedule_);
  const Version base = keeper.options.base->parts.front().version;
  Publish(service, Changed(first, 10, random_), 2);
  RawAsker one(service);
  RawAsker other(service);
  const wire::Delta told = one.Ask(base, schedule_);
  EXPECT_NE(told.offer_id, 0U);
  EXPECT_EQ(told.chunk_bytes.size(), schedule_.chunks().size());
  EXPECT_EQ(other.Ask(base, schedule_), told);  // the same offer
  one.Send(base, schedule_, 1);
  EXPECT_THAT(one.Refusal(), HasSubstr("'ask_delta' twice"));
}

TEST_F(DeltaSessionTest, WithMoreBytesThanAreOfUseThereIsNoDelta) {
  OfferService& service = Start();
  const Weights& first = Publish(service, SomeWeights(), 1);
  Keeper keeper(service, channels_, "zmq");
  keeper.Fetch(schedule_);
  const Version base = keeper.options.base->parts.front().version;
  Publish(service, Changed(first, 100, random_), 2);
  const wire::Delta none = RawAsker(service).Ask(base, schedule_, 1000);
  EXPECT_EQ(none.chunk_bytes.size(), 0U);
  EXPECT_THAT(none.why, AllOf(StartsWith("what changed since run@1:"), HasSubstr("expected at most 1000")));
}

TEST_F(DeltaSessionTest, AFetchThatFailsLeavesWhatIsKept) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "zmq");
  const Weights& first = Publish(service, SomeWeights(), 1);
  keeper.Fetch(schedule_);
  const auto base = keeper.options.base;
  const Weights& second = Publish(service, Changed(first, 10, random_), 2);
  keeper.failpoints = FailPoints("receive.chunk=corrupt@1");
  EXPECT_THAT(ErrorOf([&] { keeper.Fetch(schedule_); }), HasSubstr("chunk 2 of 3"));
  EXPECT_EQ(keeper.options.base, base);
  keeper.failpoints = FailPoints();
  keeper.Fetch(schedule_);
  keeper.ExpectTook(schedule_, second);
  EXPECT_TRUE(keeper.choice().taken);
}

TEST_F(DeltaSessionTest, WhatIsKeptAndHasChangedInMemoryIsFoundAndTheRestComesDense) {
  OfferService& service = Start();
  Keeper keeper(service, channels_, "zmq");
  const Weights* last = &Publish(service, SomeWeights(), 1);
  for (std::uint32_t chunk = 0; chunk < schedule_.chunks().size(); ++chunk) {
    keeper.Fetch(schedule_);
    keeper.options.base->parts.front().chunks->Place(chunk).back() ^= std::byte{4};
    last = &Publish(service, Changed(*last, 10, random_), 2 + chunk);
    keeper.Fetch(schedule_);
    keeper.ExpectTook(schedule_, *last);
    EXPECT_FALSE(keeper.choice().taken);
    EXPECT_THAT(keeper.choice().why, AllOf(HasSubstr("chunk " + std::to_string(chunk + 1) + " of 3"),
                                           HasSubstr("expected a base of digest")));
  }
}

}  // namespace
}  // namespace layercast::testing
