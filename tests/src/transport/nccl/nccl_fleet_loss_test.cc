// Fleets of the nccl channel that lose a member: at each stage, whoever is left goes on in the next epoch, and has
// every byte that it asked for. Over the fakes of NCCL and of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "layercast/error.h"
#include "tests/src/transport/nccl/nccl_fleet_fixture.h"

namespace layercast::nccl_channel {
namespace {

// Two members that do as they should, and one that a test plays.
class NcclFleetLoss : public NcclFleet {
 protected:
  // Nobody is missed before he is gone, or frozen.
  static Patience Patient() {
    return {.to_gather = kForever, .to_answer = kForever, .to_move = kForever, .to_share = kForever};
  }
  static Patience Impatient() {
    return {.to_gather = kForever, .to_answer = kSoon, .to_move = kSoon, .to_share = kForever};
  }

  void Begin(const Patience& patience) {
    Publish(3, patience);
    raw_.emplace(publisher_->address(), NcclParts{std::make_shared<test::FakeNccl>(), device_});
    others_ = std::jthread([this] {
      members_ = Connect(2);
      FetchEach(members_, [](std::size_t) { return Chunks(2, OneChunk().front()); });
    });
  }
  // All that they asked for has come; and what they ask for next is theirs together.
  void ExpectThatTheOthersGoOn() {
    others_.join();
    ASSERT_EQ(members_.size(), 2U);
    ExpectOneCopyFor(members_);
  }
  void ExpectOneCopyFor(Members& members) {
    const std::uint64_t before = library_->bytes_sent;
    FetchEach(members, [](std::size_t) { return OneChunk(); });
    EXPECT_EQ(library_->bytes_sent - before, kSize);
  }
  // Until they share a communicator again, and what they ask for.
  void ExpectThatTheyComeTogether(Members& members) {
    const int before = library_->broadcasts;
    for (const Deadline deadline = Soon(); library_->broadcasts == before;) {
      ASSERT_FALSE(deadline.Passed());
      FetchEach(members, [](std::size_t) { return OneChunk(); });
    }
  }
  void Ask() { raw_->Ask(1, 1, OneChunk().front()); }
  // Queues its part of what is announced next.
  void Take() {
    const PieceGroup group = Decode<PieceGroup>(raw_->Await(NcclKind::kPieces));
    EXPECT_TRUE(group.broadcast);
    std::vector<Transfer> transfers;
    for (const Piece& piece : group.pieces) transfers.push_back({memory_.data(), piece.bytes});
    raw_->communicator().Broadcast(transfers, *stream_);
    Settle(raw_->communicator());
    raw_->Say(NcclKind::kGo);
  }
  void Vanish() { raw_->Vanish(); }

  Buffer memory_{device_->device_memory(), kTestPieceBytes};
  std::unique_ptr<CopyStream> stream_ = device_->MakeStream();
  std::optional<RawReceiver> raw_;
  Members members_;
  std::jthread others_;
};

TEST_F(NcclFleetLoss, BeforeItAnswersTheCall) {
  Begin(Patient());
  raw_->Greet();
  raw_->AwaitCall();
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, BeforeItBeginsItsCommunicator) {
  Begin(Patient());
  raw_->Greet();
  raw_->AwaitCall();
  raw_->Answer();
  EXPECT_EQ(raw_->AwaitEpoch().ranks, 4);
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, WhileCommunicatorsAreSetUp) {
  Begin(Patient());
  raw_->Greet();
  raw_->AwaitCall();
  raw_->Answer();
  raw_->Begin(raw_->AwaitEpoch());
  raw_->communicator().Settled();
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, BeforeItAsksForAnything) {
  Begin(Patient());
  raw_->Enter();
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, WhileItsPiecesAreStaged) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, OnceItsPiecesAreAnnounced) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  raw_->Await(NcclKind::kPieces);
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, BeforeItJoinsABroadcastThatItHasSaidGoTo) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  Take();
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, InTheMiddleOfABroadcast) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  Take();
  std::memset(memory_.data(), 0, kTestPieceBytes);
  const std::vector<std::byte> expected = test::ExpectedBytes(std::vector<Region>{{0, 0, 1000, 1, 1000}});
  AwaitThat([&] {
    stream_->Reached(stream_->Mark());
    return std::memcmp(memory_.data(), expected.data(), expected.size()) == 0;
  });
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, AfterThat) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  Take();
  AwaitThat([&] { return stream_->Reached(stream_->Mark()); });
  raw_->Await(NcclKind::kPieces);
  Vanish();
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, WhoeverBreaksTheProtocolIsLost) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  raw_->Say(NcclKind::kDone);
  raw_->Say(NcclKind::kDone);
  ExpectCut(*raw_);
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, WhoeverIsRefusedIsLost) {
  Begin(Patient());
  raw_->Enter();
  Ask();
  raw_->Ask(2, 1, {{0, kSize, 1, 1, 1}});
  AwaitThat([&] { return KindOf(AwaitMessage(raw_->socket())) == NcclKind::kRefused; });
  ExpectThatTheOthersGoOn();
}

TEST_F(NcclFleetLoss, WhoeverComesBackIsInTheNextEpoch) {
  Publish(2, {.to_gather = kAtOnce, .to_share = std::chrono::milliseconds(100)});
  Members members = Connect(2);
  members.pop_front();
  members.splice(members.end(), Connect(1));
  ExpectThatTheyComeTogether(members);
}

// One that comes and goes does not keep another from what it was promised, nor does the next one.
TEST_F(NcclFleetLoss, NobodyNewIsTakenInBeforeSomethingHasComeToThoseThatAreThere) {
  Publish(3, {.to_gather = kAtOnce, .to_bring = kForever, .to_answer = kForever, .to_move = kForever});
  RawReceiver stays = Raw();
  stays.Enter();
  stays.Ask(1, 1, OneChunk().front());
  RawReceiver comes = Raw();
  comes.Greet();
  stays.AwaitCall();
  stays.End();
  stays.Answer(1);
  stays.Ask(1, 1, OneChunk().front());
  comes.AwaitCall();
  comes.Answer();
  EXPECT_EQ(stays.AwaitEpoch().ranks, 3);
  RawReceiver next = Raw();
  next.Greet();
  comes.Vanish();  // sets up nothing any more
  stays.AwaitCall();
  stays.Answer(1);
  stays.Ask(1, 1, OneChunk().front());
  const Membership membership = stays.AwaitEpoch();
  EXPECT_EQ(membership.ranks, 2);
  stays.Begin(membership);
  stays.Stand();
  stays.Await(NcclKind::kPieces);
  next.Say(NcclKind::kPing);
  next.Await(NcclKind::kPong);  // and was not called
  stays.Say(NcclKind::kDone);
  next.AwaitCall();
}

// Frozen members: what they do not do in time is not waited for. Once they go on, they have an epoch of their own. The
// others have all that they asked for; that they stay together is not looked at, as a busy machine may freeze them too.
class NcclFrozenMember : public NcclFleetLoss {
 protected:
  void ExpectThatTheOthersHaveAll() {
    others_.join();
    EXPECT_EQ(members_.size(), 2U);
  }
  // It was called to a fleet's epochs, and then to its own.
  void ExpectThatItGoesOnByItself() {
    std::uint64_t epoch = raw_->called();
    for (Membership membership{}; membership.ranks != 2;) {
      const Bytes message = AwaitMessage(raw_->socket());
      if (KindOf(message) == NcclKind::kCall) {
        epoch = Decode<OfEpoch>(message).epoch;
        raw_->socket().Send(Encode(Ready{epoch, 1}));
        raw_->Ask(1, 1, OneChunk().front());
      } else if (KindOf(message) == NcclKind::kEpoch) {
        membership = Decode<Membership>(message, "EPOCH");
        EXPECT_EQ(membership.epoch, epoch);
        if (membership.ranks == 2) raw_->Begin(membership);
      }
    }
    raw_->Stand();
    EXPECT_FALSE(Decode<PieceGroup>(raw_->Await(NcclKind::kPieces)).broadcast);
  }
  // Once it has all that it asked for, it is in the epoch that is made for what it, and the others, ask for next.
  void ExpectThatItComesBack() {
    raw_->Say(NcclKind::kDone);
    raw_->Say(NcclKind::kPing);
    raw_->End();
    AwaitThat([&] { return KindOf(AwaitMessage(raw_->socket())) == NcclKind::kPong; });
    Ask();
    others_ = std::jthread([this] { FetchEach(members_, [](std::size_t) { return OneChunk(); }); });
    Membership membership{};
    while (membership.ranks != 4) {
      const Bytes message = AwaitMessage(raw_->socket());
      if (KindOf(message) == NcclKind::kCall) {
        raw_->End();
        raw_->socket().Send(Encode(Ready{Decode<OfEpoch>(message).epoch, 1}));
        Ask();
      } else if (KindOf(message) == NcclKind::kEpoch) {
        membership = Decode<Membership>(message, "EPOCH");
        raw_->Begin(membership);
      }
    }
    raw_->Stand();
    EXPECT_TRUE(Decode<PieceGroup>(raw_->Await(NcclKind::kPieces)).broadcast);
    Vanish();
    ExpectThatTheOthersHaveAll();
  }
};

TEST_F(NcclFrozenMember, ThatDoesNotAnswerTheCall) {
  Begin(Impatient());
  raw_->Greet();
  ExpectThatTheOthersHaveAll();
  ExpectThatItGoesOnByItself();
}

TEST_F(NcclFrozenMember, ThatDoesNotBeginItsCommunicator) {
  Begin(Impatient());
  raw_->Greet();
  raw_->AwaitCall();
  raw_->Answer();
  ExpectThatTheOthersHaveAll();
  ExpectThatItGoesOnByItself();
}

TEST_F(NcclFrozenMember, ThatTakesNothing) {
  Begin(Impatient());
  raw_->Enter();
  Ask();
  ExpectThatTheOthersHaveAll();
  ExpectThatItGoesOnByItself();
  ExpectThatItComesBack();
}

TEST_F(NcclFrozenMember, ThatSaysGoAndJoinsNoBroadcast) {
  Begin(Impatient());
  raw_->Enter();
  Ask();
  Take();
  ExpectThatTheOthersHaveAll();
  raw_->End();
  ExpectThatItGoesOnByItself();
}

// NCCL itself fails, and nobody is lost: who is to blame is not known.
TEST_F(NcclFleetLoss, WhereNcclFailsAtAMemberEachGoesOnByItself) {
  for (const int groups : {0, 1, 3}) {
    Publish(3, Patient());
    Members members = Connect(3);
    members.front().library->groups_until_error = groups;
    const int before = library_->communicators;
    FetchEach(members, [](std::size_t) { return Chunks(3, OneChunk().front()); });
    EXPECT_GE(library_->communicators - before, 3);
    ExpectThatTheyComeTogether(members);
    members.clear();
    published_.reset();
  }
}

TEST_F(NcclFleetLoss, WhereNcclFailsAtThePublisherEachGoesOnByItself) {
  for (const int groups : {0, 1, 3}) {
    Publish(3, Patient());
    Members members = Connect(3);
    library_->groups_until_error = groups;
    FetchEach(members, [](std::size_t) { return Chunks(3, OneChunk().front()); });
    members.clear();
    published_.reset();
  }
}

TEST_F(NcclFleetLoss, WhatWasSaidBeforeTheCallWasHeardDoesNotCount) {
  Publish(2, Patient());
  raw_.emplace(publisher_->address(), NcclParts{std::make_shared<test::FakeNccl>(), device_});
  RawReceiver other = Raw();
  raw_->Greet();
  other.Greet();
  for (RawReceiver* receiver : {&*raw_, &other}) {
    receiver->AwaitCall();
    receiver->Answer();
  }
  for (RawReceiver* receiver : {&*raw_, &other}) receiver->Begin(receiver->AwaitEpoch());
  AwaitThat([&] {  // each gets on only as it is asked
    const bool mine = raw_->communicator().Settled();
    return other.communicator().Settled() && mine;
  });
  raw_->Stand();
  other.Stand();
  Ask();
  other.Ask(1, 1, OneChunk().front());
  raw_->Await(NcclKind::kPieces);
  other.Vanish();
  const std::uint64_t epoch = raw_->AwaitCall();
  raw_->Say(NcclKind::kGo);
  raw_->Say(NcclKind::kGo);
  raw_->Say(NcclKind::kFailed, epoch - 1);
  raw_->socket().Send(Encode(Ready{epoch - 1, 0}));
  Ask();  // which would come twice
  raw_->Say(NcclKind::kDone);
  raw_->Answer(1);
  Ask();
  raw_->End();
  raw_->Begin(raw_->AwaitEpoch());
  raw_->Stand();
  EXPECT_FALSE(Decode<PieceGroup>(raw_->Await(NcclKind::kPieces)).broadcast);
  raw_->Say(NcclKind::kDone);
  raw_->Say(NcclKind::kDone);
  ExpectCut(*raw_);
}

}  // namespace
}  // namespace layercast::nccl_channel
