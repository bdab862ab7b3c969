// Peers that break the protocol of the nccl channel, at either end: they lose their connection, and nothing else
// happens. Over the fakes of NCCL and of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "tests/src/transport/nccl/nccl_fixture.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclPublisher : public NcclChannel {
 protected:
  static constexpr Region kAll{0, 0, kSize, 1, kSize};
};

TEST_F(NcclPublisher, CutsWhoeverGreetsItWrongly) {
  Hello other_key = Raw().RightHello();
  other_key.key = RandomToken();
  Hello no_version = Raw().RightHello();
  no_version.version = 0;
  Bytes longer = Encode(Raw().RightHello());
  longer.push_back(std::byte{0});
  for (const Bytes& message :
       {Bytes{}, Bytes{std::byte{99}}, Encode(other_key), Encode(no_version), longer, Encode(Bare{Kind::kPing}),
        Encode(Request{1, 1, {}}), Encode(BareOf(NcclKind::kGo)), Encode(Ready{1, 0})}) {
    RawReceiver receiver = Raw();
    receiver.socket().Send(message);
    ExpectCut(receiver);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsWhoeverHasNoKeyOrOneThatIsUsedUp) {
  const Hello used_up = Raw().RightHello();
  for (int i = 0; i < Invitations::kConnections; ++i) {
    RawReceiver receiver = Raw();
    receiver.socket().Send(Encode(used_up));
    Decode<Welcome>(receiver.Await(NcclKind::kWelcome));
  }
  Hello without = Raw().RightHello();
  without.key = {};
  for (const Hello& hello : {used_up, without}) {
    RawReceiver receiver = Raw();
    receiver.socket().Send(Encode(hello));
    ExpectCut(receiver);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsTheConnectionsOfASessionThatHasEnded) {
  RawReceiver receiver = Raw();
  receiver.Greet();
  publisher_->TakeBack(WithKey("nccl", receiver.RightHello().key));
  ExpectCut(receiver);
  RawReceiver again = Raw();
  again.socket().Send(Encode(receiver.RightHello()));
  ExpectCut(again);
  ExpectServing();
}

TEST_F(NcclPublisher, NamesTheVersionsOfTheProtocolThatDiffer) {
  RawReceiver receiver = Raw();
  Hello hello = receiver.RightHello();
  hello.version = kVersion + 1;
  receiver.socket().Send(Encode(hello));
  const Refusal refusal = Decode<Refusal>(receiver.Await(NcclKind::kRefused));
  EXPECT_EQ(refusal.code, ErrorCode::kUnsupported);
  EXPECT_EQ(refusal.message, "the receiver speaks version 4 of the nccl channel, expected 3");
}

TEST_F(NcclPublisher, CutsWhoeverAnswersACallThatItDidNotGet) {
  for (const std::uint64_t epoch : {std::uint64_t{0}, std::uint64_t{1'000}}) {
    RawReceiver receiver = Raw();
    receiver.Greet();
    receiver.AwaitCall();
    receiver.socket().Send(Encode(Ready{epoch, 0}));
    ExpectCut(receiver);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsWhoeverSendsGarbageOnceItIsServed) {
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, Encode(Bare{Kind::kPong}), Encode(Raw().RightHello()),
                               Encode(BareOf(NcclKind::kGo)), Encode(BareOf(NcclKind::kDone)),
                               Encode(BareOf(NcclKind::kStands)), Encode(OfEpoch{NcclKind::kCall, 1})}) {
    RawReceiver receiver = Raw();
    receiver.Enter();
    receiver.socket().Send(message);
    ExpectCut(receiver);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsWhoeverTakesMoreThanWasAnnounced) {
  RawReceiver receiver = Raw();
  receiver.Enter();
  receiver.Ask(1, 1, {kAll});
  EXPECT_EQ(Decode<PieceGroup>(receiver.Await(NcclKind::kPieces)).pieces.front().bytes, kTestPieceBytes);
  for (std::size_t i = 0; i < 2 * kPiecesUnderWay; ++i) receiver.Say(NcclKind::kGo);
  ExpectCut(receiver);
  ExpectServing();
}

TEST_F(NcclPublisher, AnnouncesNoMoreThanItsSlotsHold) {
  RawReceiver receiver = Raw();
  receiver.Enter();
  for (std::uint64_t ticket = 0; ticket < 4; ++ticket) receiver.Ask(ticket, 1, {kAll});
  for (std::size_t pieces = 0; pieces < kPiecesUnderWay;) {
    pieces += Decode<PieceGroup>(receiver.Await(NcclKind::kPieces)).pieces.size();
    EXPECT_LE(pieces, kPiecesUnderWay);
  }
  receiver.socket().Send(Encode(Bare{Kind::kPing}));
  receiver.Await(NcclKind::kPong);  // and no further piece before it
}

TEST_F(NcclPublisher, CutsWhoeverHasTooMuchUnderWay) {
  RawReceiver receiver = Raw();
  receiver.Enter();
  for (std::size_t i = 0; i < kMaxRequestsUnderWay + 100; ++i) receiver.Ask(1, 1, {kAll});
  ExpectCut(receiver);
  ExpectServing();
}

// A publisher that greets and calls as it should, and then says and sends what a test wants.
class FakePublisher {
 public:
  // `sent`: what goes by NCCL for the first pieces that the receiver takes, as it takes them; none: nothing ever.
  // `patience`: the receiver's.
  FakePublisher(std::vector<Bytes> messages, std::vector<std::size_t> sent, const Patience& patience)
      : patience_(patience) {
    address_.key = RandomToken();
    UniqueFd listener = Listen("127.0.0.1", address_);
    thread_ = std::jthread([this, messages = std::move(messages), sent = std::move(sent),
                            moved = std::move(listener)](const std::stop_token& stop) {
      pollfd item{moved.get(), POLLIN, 0};
      PollFor({&item, 1}, std::chrono::milliseconds(test::kPatience));
      ControlSocket socket(UniqueFd(::accept4(moved.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      try {
        Serve(socket, messages, sent, stop);
      } catch (const Error&) {  // the receiver has gone
      }
    });
  }
  std::string address() const { return address_.Text(); }
  NcclParts parts() const { return {library_, device_, patience_}; }

 private:
  void Serve(ControlSocket& socket, const std::vector<Bytes>& messages, const std::vector<std::size_t>& sent,
             const std::stop_token& stop) {
    AwaitMessage(socket);  // HELLO
    socket.Send(Encode(Welcome{}));
    socket.Send(Encode(OfEpoch{NcclKind::kCall, 1}));
    AwaitMessage(socket);  // READY
    const ncclUniqueId id = MakeUniqueId(*library_);
    Buffer memory(device_->device_memory(), kTestPieceBytes);
    const auto stream = device_->MakeStream();
    Communicator communicator(*library_, *device_, {1, 2, kPublisherRank, id});
    socket.Send(Encode(Membership{1, 2, 1, id}));
    Settle(communicator);
    while (!stop.stop_requested()) {
      communicator.Settled();
      stream->Reached(stream->Mark());
      const auto message = socket.Receive();
      if (!message) continue;
      if (KindOf(*message) == NcclKind::kRequest) {
        for (const Bytes& answer : messages) socket.Send(answer);
      } else if (KindOf(*message) == NcclKind::kPing) {
        socket.Send(Encode(Bare{Kind::kPong}));
      } else if (KindOf(*message) == NcclKind::kGo && !sent.empty()) {
        std::vector<Transfer> transfers;
        for (const std::size_t bytes : sent) transfers.push_back({memory.data(), bytes, 1});
        communicator.Send(transfers, *stream);
      }
    }
  }

  const Patience patience_;
  std::shared_ptr<test::FakeNccl> library_ = std::make_shared<test::FakeNccl>();
  std::shared_ptr<test::FakeChannelDevice> device_ = std::make_shared<test::FakeChannelDevice>();
  ControlAddress address_{.channel = "nccl"};
  std::jthread thread_;
};

Bytes PiecesOf(const std::vector<Piece>& pieces, bool broadcast = false) {
  return Encode(PieceGroup{broadcast, pieces});
}

std::string WhatBecomesOf(const std::vector<Bytes>& messages, const std::vector<std::size_t>& sent, ErrorCode code,
                          const Patience& patience = {}) {
  const FakePublisher publisher(messages, sent, patience);
  const auto receiver = TransportOf(publisher.parts())->Connect(publisher.address(), Soon());
  constexpr std::size_t kAsked = 100'000;
  const std::vector<Region> regions = {{0, 0, kAsked, 1, kAsked}};
  Bytes destination(2 * kAsked, std::byte{0x5A});
  receiver->Submit({7, 1, regions, destination});
  const std::string error = ErrorOf([&] { receiver->Poll(Soon()); }, code);
  receiver->Close();
  EXPECT_EQ(destination, Bytes(2 * kAsked, std::byte{0x5A}));
  return error;
}

TEST(NcclReceiver, RefusesPiecesThatItDidNotAskFor) {
  for (const std::vector<Piece>& pieces : std::vector<std::vector<Piece>>{
           {{8, 0, 100'000}},                      // another ticket
           {{7, 0, 100'001}},                      // more than was asked for
           {{7, 1, 99'999}},                       // not the next
           {{7, ~std::uint64_t{0}, 10}},           // far past the end
           {{7, 0, 60'000}, {7, 0, 60'000}},       // the same twice
           {{7, 0, 60'000}, {7, 60'000, 40'001}},  // past the end
           {{7, 0, 0}},                            // a piece of nothing
       }) {
    for (const bool broadcast : {false, true}) {
      EXPECT_THAT(WhatBecomesOf({PiecesOf(pieces, broadcast)}, {}, ErrorCode::kCorrupt),
                  HasSubstr("a piece that was not asked for"));
    }
  }
}

TEST(NcclReceiver, RefusesMoreThanItHasMemoryFor) {
  std::vector<Bytes> messages;
  for (std::uint64_t i = 0; i < 3 * kPiecesUnderWay; ++i) messages.push_back(PiecesOf({{7, 1000 * i, 1000}}));
  EXPECT_THAT(WhatBecomesOf(messages, {}, ErrorCode::kCorrupt), HasSubstr("a piece that was not asked for"));
}

TEST(NcclReceiver, RefusesMessagesThatNoPublisherSends) {
  WhatBecomesOf({Bytes{std::byte{77}}}, {}, ErrorCode::kCorrupt);
  WhatBecomesOf({Encode(Bare{Kind::kPing})}, {}, ErrorCode::kCorrupt);
  EXPECT_THAT(WhatBecomesOf({Encode(Refusal{7, ErrorCode::kNotFound, "gone"})}, {}, ErrorCode::kNotFound),
              HasSubstr("it refused: gone"));
}

TEST(NcclReceiver, RefusesEpochsThatItWasNotCalledTo) {
  const ncclUniqueId id{};
  EXPECT_THAT(WhatBecomesOf({Encode(OfEpoch{NcclKind::kCall, 0})}, {}, ErrorCode::kCorrupt),
              HasSubstr("epoch 0 after 1"));
  EXPECT_THAT(WhatBecomesOf({Encode(Membership{1, 2, 1, id})}, {}, ErrorCode::kCorrupt), HasSubstr("did not call"));
  EXPECT_THAT(WhatBecomesOf({Encode(Membership{2, 2, 1, id})}, {}, ErrorCode::kCorrupt), HasSubstr("did not call"));
  EXPECT_THAT(WhatBecomesOf({Encode(OfEpoch{NcclKind::kCall, 2}), PiecesOf({{7, 0, 100}})}, {}, ErrorCode::kCorrupt),
              HasSubstr("outside of an epoch"));
}

TEST(NcclReceiver, APieceOfAnotherSizeThanAnnouncedIsAnErrorOfNccl) {
  const Patience patience{.to_move = std::chrono::milliseconds(2000)};  // long for a publisher that sends something
  EXPECT_THAT(WhatBecomesOf({PiecesOf({{7, 0, 100'000}})}, {99'999}, ErrorCode::kUnavailable, patience),
              AllOf(HasSubstr("epoch 1"), HasSubstr("invalid usage")));
}

TEST(NcclReceiver, GivesUpAPublisherThatAnswersWhileNcclBringsNothing) {
  const Patience patience{.to_move = std::chrono::milliseconds(300)};
  EXPECT_THAT(WhatBecomesOf({PiecesOf({{7, 0, 100'000}})}, {}, ErrorCode::kUnavailable, patience),
              HasSubstr("NCCL has brought nothing for 450 ms"));
  // It was told of a broadcast, and is sent something.
  EXPECT_THAT(WhatBecomesOf({PiecesOf({{7, 0, 100'000}}, true)}, {100'000}, ErrorCode::kUnavailable, patience),
              HasSubstr("NCCL has brought nothing for 450 ms"));
}

}  // namespace
}  // namespace layercast::nccl_channel
