// Fleets of the nccl channel: what is equal goes once to all, what differs to each; and who belongs to which epoch.
// Over the fakes of NCCL and of a device. Members that are lost: nccl_fleet_loss_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_queue.h"
#include "src/transport/nccl/fleet/sharing.h"
#include "tests/src/transport/nccl/nccl_fleet_fixture.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using test::Fetch;
using test::FetchOne;
using ::testing::HasSubstr;

class NcclSharing : public ::testing::Test {
 protected:
  NcclSharing() { book_.Add({1, {{memory_.data(), memory_.size()}}}); }
  void Ask(ReplyQueue& queue, std::uint64_t offset) { queue.Push({1, 1, {{0, offset, 1, 1, 1}}}, book_, nullptr); }

  std::array<std::byte, 8> memory_{};
  WakeUp wake_;
  OfferBook book_{"nccl", wake_};
  ReplyQueue first_;
  ReplyQueue second_;
  Sharing sharing_{{&first_, &second_}, test::kPatience};
};

TEST_F(NcclSharing, ARequestWaitsForTheSameOneBehindOthers) {
  Ask(first_, 3);
  Ask(second_, 5);
  Ask(second_, 3);
  sharing_.Decide();
  EXPECT_FALSE(sharing_.together());
  EXPECT_FALSE(sharing_.alone(0));
  EXPECT_TRUE(sharing_.alone(1));
  EXPECT_TRUE(sharing_.waits());
  second_.Pop();
  sharing_.TookAlone(1);
  sharing_.Decide();
  EXPECT_TRUE(sharing_.together());
}

TEST_F(NcclSharing, ARequestThatNobodyElseHasWaitsForWhoeverHasAskedForNothing) {
  Ask(first_, 3);
  sharing_.Decide();
  EXPECT_TRUE(sharing_.waits());
  EXPECT_FALSE(sharing_.alone(0));
  Ask(second_, 5);
  sharing_.Decide();
  EXPECT_TRUE(sharing_.alone(0));
  EXPECT_TRUE(sharing_.alone(1));
  EXPECT_FALSE(sharing_.waits());
}

class NcclFleetDelivery : public NcclFleet {};

TEST_F(NcclFleetDelivery, EqualRequestsGoByOneBroadcast) {
  Publish(3);
  Members members = Connect(3);
  const Chunks chunks = {
      {{0, 0, kSize, 1, kSize}}, {{0, 5, 1000, 9000, 1400}, {0, 17, 3'000'000, 1, 3'000'000}}, {}, {{0, 3, 10, 1, 10}}};
  FetchEach(members, [&](std::size_t) { return chunks; });
  EXPECT_GT(library_->broadcasts, 0);
  EXPECT_EQ(library_->sends, 0);
  EXPECT_EQ(library_->bytes_sent, BytesOf(chunks));  // one copy for three
  EXPECT_EQ(library_->communicators, 1);
}

TEST_F(NcclFleetDelivery, DifferentRequestsGoToEachOnTheSameCommunicator) {
  Publish(3, {.to_gather = kForever});
  Members members = Connect(3);
  const auto slice = [](std::size_t number) { return Chunks{{{0, number, 9'000'000, 1, 9'000'000}}}; };
  FetchEach(members, slice);
  EXPECT_EQ(library_->broadcasts, 0);
  EXPECT_GT(library_->sends, 0);
  EXPECT_EQ(library_->bytes_sent, 3 * BytesOf(slice(0)));
  EXPECT_EQ(library_->communicators, 1);
}

TEST_F(NcclFleetDelivery, ARequestWaitsForTheSameOneOfTheOthers) {
  Publish(2);
  Members members = Connect(2);
  Fetch first(OneChunk().front());
  first.Submit(*members.front().end, 1, 1);
  EXPECT_FALSE(members.front().end->Poll(Deadline::After(std::chrono::milliseconds(20))));
  std::jthread second([&] { FetchAll(*members.back().end, OneChunk()); });
  const auto completion = members.front().end->Poll(Soon());
  ASSERT_TRUE(completion);
  EXPECT_TRUE(first.IsRight(*completion));
  second.join();
  EXPECT_EQ(library_->bytes_sent, kSize);
}

TEST_F(NcclFleetDelivery, ARequestThatWaitsInVainGoesAlone) {
  Publish(2, {.to_gather = kForever, .to_share = std::chrono::milliseconds(1)});
  Members members = Connect(2);
  FetchAll(*members.front().end, OneChunk());
  EXPECT_EQ(library_->broadcasts, 0);
  FetchAll(*members.back().end, OneChunk());
  EXPECT_EQ(library_->bytes_sent, 2 * kSize);
}

// Shared and own requests of all lengths, in an order that only the seed knows.
TEST_F(NcclFleetDelivery, BringsAnyScheduleToAnybody) {
  Publish(4, {.to_gather = kForever, .to_share = std::chrono::milliseconds(2)});
  Members members = Connect(4);
  const auto schedule = [](std::size_t number) {
    std::mt19937 shared(7);
    std::mt19937 own(static_cast<unsigned>(number));
    Chunks chunks;
    for (int i = 0; i < 60; ++i) {
      const std::uint64_t equal = shared() % 6'000'000;
      const std::uint64_t different = own() % 300'000;
      if (i % 3 != 0 || own() % 2 == 0) chunks.push_back({{0, equal % 1000, equal, 1, equal}});
      if (i % 3 == 0) chunks.push_back({{0, different, 1 + different % 70, 100, 90}});
    }
    return chunks;
  };
  FetchEach(members, schedule);
  EXPECT_EQ(library_->communicators, 1);
}

TEST_F(NcclFleetDelivery, AnOfferThatIsRemovedIsRefusedToAll) {
  Publish(2);
  Members members = Connect(2);
  std::vector<std::jthread> threads;
  published_->Withdraw();
  for (Member& member : members) {
    threads.emplace_back([&] {
      Fetch fetch(OneChunk().front());
      EXPECT_THAT(ErrorOf([&] { FetchOne(*member.end, 1, fetch); }, ErrorCode::kNotFound), HasSubstr("offer 1"));
    });
  }
}

class NcclFleetMembership : public NcclFleet {};

TEST_F(NcclFleetMembership, AFleetIsOfOneToSixtyFour) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{65}}) {
    EXPECT_THAT(ErrorOf([&] { Publish(size); }, ErrorCode::kInvalidArgument), HasSubstr("expected 1 to 64"));
  }
  Publish(64);
}

TEST_F(NcclFleetMembership, WhoeverIsThereGoesAheadAfterAWhile) {
  Publish(8, {.to_gather = std::chrono::milliseconds(1)});
  Members members = Connect(1);
  FetchAll(*members.front().end, OneChunk());
}

TEST_F(NcclFleetMembership, AReceiverBeyondTheFleetHasAnEpochOfItsOwn) {
  Publish(2);
  Members members = Connect(2);
  Members beyond = Connect(1);
  EXPECT_EQ(library_->communicators, 2);
  FetchAll(*beyond.front().end, OneChunk());
  EXPECT_EQ(library_->broadcasts, 0);
  FetchEach(members, [](std::size_t) { return OneChunk(); });
  EXPECT_EQ(library_->bytes_sent, 2 * kSize);
}

// The first one waits for a second member, which the second one is not.
TEST_F(NcclFleetMembership, TwoReceiversOnOneGpuAreNotInOneEpoch) {
  Publish(2, {.to_gather = kForever, .to_answer = 2 * kForever});
  RawReceiver first = Raw();
  RawReceiver second = Raw();
  const Hello hello = first.RightHello();
  for (RawReceiver* receiver : {&first, &second}) {
    receiver->socket().Send(Encode(hello));
    Decode<Welcome>(receiver->Await(NcclKind::kWelcome));
  }
  second.AwaitCall();
  second.Answer();
  EXPECT_EQ(second.AwaitEpoch().ranks, 2);
}

TEST_F(NcclFleetMembership, OtherVersionsOfNcclAreRefusedAndNobodyWaitsForThem) {
  Publish(2);
  const auto other = std::make_shared<test::FakeNccl>(NCCL_VERSION(2, 20, 5));
  std::jthread late([&] {
    EXPECT_THAT(ErrorOf([&] { TransportOf({other, device_})->Connect(publisher_->address(), Soon()); },
                        ErrorCode::kUnsupported),
                HasSubstr("NCCL works among equal versions alone"));
  });
  Members members = Connect(2);
  FetchEach(members, [](std::size_t) { return OneChunk(); });
  EXPECT_EQ(library_->bytes_sent, kSize);
}

TEST_F(NcclFleetMembership, WhoeverComesLaterJoinsTheNextEpoch) {
  Publish(3, {.to_gather = kAtOnce, .to_share = std::chrono::milliseconds(100)});
  Members members = Connect(1);
  FetchAll(*members.front().end, OneChunk());
  members.splice(members.end(), Connect(2));
  for (const Deadline deadline = Soon(); library_->broadcasts == 0;) {
    ASSERT_FALSE(deadline.Passed());
    FetchEach(members, [](std::size_t) { return OneChunk(); });
  }
}

// In the middle of what another takes.
TEST_F(NcclFleetMembership, WhatIsUnderWaySurvivesThatAnotherJoins) {
  Publish(2, {.to_gather = kAtOnce});
  Members members = Connect(1);
  const Chunks chunks(12, OneChunk().front());
  std::jthread first([&] { FetchAll(*members.front().end, chunks); });
  AwaitThat([&] { return library_->bytes_sent > kSize; });
  Members late = Connect(1);
  FetchAll(*late.front().end, OneChunk());
  first.join();
}

TEST_F(NcclFleetMembership, WhoeverHasAllMayGoWithoutACommunicatorForTheRest) {
  Publish(3);
  Members members = Connect(3);
  FetchEach(members, [](std::size_t) { return OneChunk(); });
  members.pop_front();
  for (Member& member : members) EXPECT_FALSE(member.end->Poll(Soon()));
  EXPECT_EQ(library_->communicators, 1);
  FetchEach(members, [](std::size_t) { return OneChunk(); });  // which wants one
  EXPECT_GT(library_->communicators, 1);
}

// Members come and go; one stays, and has what it asks for, once they leave it the time.
TEST_F(NcclFleet, WhoeverStaysHasEverythingWhateverTheOthersDo) {
  Publish(3, {.to_gather = std::chrono::milliseconds(1), .to_share = std::chrono::milliseconds(1)});
  std::vector<std::jthread> others;
  for (unsigned number = 0; number < 2; ++number) {
    others.emplace_back([this, number] {
      std::mt19937 random(number);
      for (int visit = 0; visit < 30; ++visit) {
        Member member(publisher_->address());
        test::Fetch fetch(OneChunk().front());
        fetch.Submit(*member.end, 1, 1);
        for (auto polls = random() % 200; polls > 0; --polls) {
          member.end->Poll(Deadline::After(std::chrono::milliseconds(0)));
        }
        member.end->Close();
      }
    });
  }
  Members members = Connect(1);
  for (int round = 0; round < 5; ++round) {
    FetchAll(*members.front().end, Chunks(4, {{0, 7, 6'000'000, 1, 6'000'000}}));
  }
}

}  // namespace
}  // namespace layercast::nccl_channel
