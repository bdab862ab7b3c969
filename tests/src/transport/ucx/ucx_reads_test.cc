// One-sided reads of the ucx channel, over devices that tests play: when they are taken, what they cost, and what
// becomes of them when the devices, the publisher or the receiver are not as they should be.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/transport/ucx/ucx_transport.h"
#include "src/transport/ucx/wire/greeting.h"
#include "src/transport/ucx/wire/ucx_messages.h"
#include "tests/src/transport/ucx/ucx_fixture.h"
#include "tests/support/fakes/fake_one_sided.h"

namespace layercast::ucx_channel {
namespace {

using test::FakeOneSided;
using test::Fetch;
using test::FetchOne;

constexpr std::array<std::size_t, 2> kReadSizes{8 << 20, 5000};
constexpr const char* kFakeLane = "fake/device, one-sided";

class UcxReading : public ::testing::Test {
 protected:
  std::unique_ptr<FetchingEnd> Connect(Deadline deadline = Soon()) const {
    return receivers_->Connect(publisher_->address(), deadline);
  }
  ControlAddress PublisherAddress() const { return ControlAddress::Parse("ucx", publisher_->address()); }
  // Says HELLO, reads nothing, and says that it has read the token.
  Greeted GreetRaw() const {
    ControlSocket socket = ControlSocket::Connect(PublisherAddress(), Soon());
    socket.Send(Encode(Hello{kVersion, PublisherAddress().key, true, HostIdentity::Mine()}));
    Welcome welcome = Decode<Welcome>(AwaitMessage(socket));
    EXPECT_EQ(welcome.lanes, Lanes::kReads);
    socket.Send(Encode(Read{0}));
    return {std::move(socket), std::move(welcome)};
  }
  void ExpectServing(const std::string& lane = kFakeLane) const {
    const auto receiver = Connect();
    EXPECT_EQ(receiver->lane(), lane);
    Fetch fetch({{0, 1, 99'999, 1, 99'999}, {1, 3, 10, 30, 100}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }

  const std::shared_ptr<FakeOneSided> theirs_ = std::make_shared<FakeOneSided>();  // the publisher's
  const std::shared_ptr<FakeOneSided> mine_ = std::make_shared<FakeOneSided>();
  const std::unique_ptr<Transport> receivers_ = MakeUcxTransport({mine_, true});
  std::unique_ptr<OfferingEnd> publisher_ = MakeUcxTransport({theirs_, true})->Offering({});
  std::optional<test::PublishedBytes> published_{std::in_place, *publisher_, 1, kReadSizes};
};

TEST_F(UcxReading, AreTakenWhereBothEndsHaveTheDevices) {
  ExpectServing();
  mine_->device().here = false;
  ExpectServing("posix/memory");
}

TEST_F(UcxReading, AreNotTakenOnOneHostUnlessTestsWantIt) {
  const auto publisher = MakeUcxTransport({theirs_, false})->Offering({});
  EXPECT_EQ(receivers_->Connect(publisher->address(), Soon())->lane(), "posix/memory");
  const Environment tcp("UCX_TLS", "tcp");  // nor over loopback
  EXPECT_EQ(receivers_->Connect(publisher->address(), Soon())->lane(), "tcp/lo");
}

TEST_F(UcxReading, AreNotTakenFromAPublisherWithoutDevices) {
  theirs_->device().here = false;
  const auto publisher = MakeUcxTransport({theirs_, true})->Offering({});
  EXPECT_EQ(receivers_->Connect(publisher->address(), Soon())->lane(), "posix/memory");
}

// What is wrong with the devices makes a receiver go on with messages, for a while also when it is right again.
void ExpectMessages(const std::string& address, FakeOneSided& mine, std::atomic<bool>& bent, bool value) {
  const auto transport = MakeUcxTransport({std::make_shared<FakeOneSided>(mine), true});
  bent = value;
  for (int i = 0; i < 2; ++i) {
    // Half of it is for reads, and the other half is enough for messages on a busy machine, too.
    const auto receiver = transport->Connect(address, Deadline::After(std::chrono::seconds(4)));
    EXPECT_EQ(receiver->lane(), "posix/memory");
    Fetch fetch({{0, 1, 99'999, 1, 99'999}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
    bent = !value;
  }
}

TEST_F(UcxReading, GiveWayToMessagesWhereTheyDoNotWork) {
  ExpectMessages(publisher_->address(), *mine_, mine_->device().can_connect, false);
  ExpectMessages(publisher_->address(), *mine_, theirs_->device().lies, true);
  ExpectMessages(publisher_->address(), *mine_, theirs_->device().stuck, true);
  ExpectServing();
}

TEST_F(UcxReading, RegisterATensorOnceForAllReceiversUntilItIsRemoved) {
  const std::size_t before = theirs_->device().registered;
  std::vector<std::unique_ptr<FetchingEnd>> receivers;
  for (int i = 0; i < 5; ++i) {
    receivers.push_back(Connect());
    Fetch fetch({{1, 3, 10, 30, 100}, {1, 0, 5, 1, 5}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receivers.back(), 1, fetch)));
  }
  EXPECT_EQ(theirs_->device().registered - before, 5U + 1);  // five tokens, one tensor
  published_->Withdraw();
  EXPECT_EQ(theirs_->device().held, 5U);
  publisher_.reset();
  EXPECT_EQ(theirs_->device().held, 0U);
}

TEST_F(UcxReading, OfThousandsOfTensorsAreGrantedInSeveralMessages) {
  const std::vector<std::size_t> sizes(5000, 3);
  const test::PublishedBytes published(*publisher_, 2, sizes);
  std::vector<Region> regions;
  for (std::uint32_t tensor = 0; tensor < sizes.size(); ++tensor) regions.push_back({tensor, 1, 2, 1, 2});
  const auto receiver = Connect();
  Fetch fetch(regions);
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 2, fetch)));
  ControlSocket socket = GreetRaw().control;
  socket.Send(Encode(Request{7, 2, regions}));
  EXPECT_FALSE(Decode<Granted>(AwaitMessage(socket)).last);
}

TEST_F(UcxReading, OfMemoryThatCannotBeRegisteredAreRefusedAndMessagesFollow) {
  const auto receiver = Connect();
  theirs_->device().can_register = false;
  Fetch fetch({{0, 1, 99'999, 1, 99'999}});
  try {
    FetchOne(*receiver, 1, fetch);
    ADD_FAILURE() << "it was served";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  }
  ExpectServing("posix/memory");
}

TEST_F(UcxReading, OfAnOfferThatIsRemovedEndAfterASecond) {
  const auto receiver = Connect();
  std::vector<Fetch> fetches;
  for (std::uint64_t i = 0; i < 8; ++i) fetches.emplace_back(std::vector<Region>{{0, i, 7 << 20, 1, 7 << 20}});
  for (std::uint64_t i = 0; i < fetches.size(); ++i) fetches[i].Submit(*receiver, i, 1);
  ASSERT_TRUE(receiver->Poll(Soon()));
  publisher_->Remove(1);  // a second later it cuts whoever has not read
  try {
    while (receiver->Poll(Soon())) {
    }
    ADD_FAILURE() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
  }
}

TEST_F(UcxReading, ThatNeverComeAreGivenUpThoughThePublisherAnswers) {
  const auto receiver = Connect();
  theirs_->device().stuck = true;
  Fetch fetch({{0, 1, 99'999, 1, 99'999}});
  try {
    FetchOne(*receiver, 1, fetch);
    ADD_FAILURE() << "it came";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
    EXPECT_NE(std::string(error.what()).find("no read has come for 10 seconds"), std::string::npos) << error.what();
  }
}

// Reads by hand, past all protocol.
bool Lands(RemoteReads& reads, const RemotePlace& place, std::span<std::byte> destination) {
  const auto key = reads.Open(place.key);
  reads.Read(*key, place.address, destination, 1);
  for (const Deadline deadline = Soon(); !deadline.Passed() && reads.failure().empty();) {
    reads.Progress();
    if (reads.TakeLanded()) return true;
  }
  return false;
}

TEST_F(UcxReading, ByAKeyThatWasKeptBringNothingOnceTheOfferIsRemoved) {
  auto [socket, welcome] = GreetRaw();
  socket.Send(Encode(Request{7, 1, {Region{1, 0, 5000, 1, 5000}}}));
  const RemotePlace kept = Decode<Granted>(AwaitMessage(socket)).tensors.at(0).place;
  const auto reads = mine_->MakeReads();
  reads->Connect(welcome.address);
  Bytes destination(5000);
  EXPECT_TRUE(Lands(*reads, kept, destination));
  socket.Send(Encode(Read{7}));
  published_->Withdraw();
  EXPECT_FALSE(Lands(*reads, kept, destination));
  EXPECT_EQ(theirs_->device().refused, 1U);
}

TEST_F(UcxReading, OfWhoNeverSaysThatItHasReadCostItItsConnection) {
  ControlSocket socket = GreetRaw().control;
  socket.Send(Encode(Request{7, 1, {Region{1, 0, 5000, 1, 5000}}}));
  Decode<Granted>(AwaitMessage(socket));
  published_->Withdraw();  // returns
  EXPECT_EQ(Decode<Refusal>(AwaitMessage(socket)).code, ErrorCode::kNotFound);
  ExpectCut(socket);
}

TEST_F(UcxReading, AreCutForWhoeverBreaksTheProtocol) {
  const Bytes request = Encode(Request{7, 1, {Region{1, 0, 5, 1, 5}}});
  Bytes longer = Encode(Read{7});
  longer.push_back(std::byte{0});
  const std::vector<std::vector<Bytes>> wrong = {
      {Encode(Read{7})},                            // nothing was granted
      {Encode(Read{0})},                            // the token's is done with
      {request, Encode(Read{8})},                   // another's
      {request, Encode(Read{7}), Encode(Read{7})},  // twice
      {request, request},                           // one ticket twice
      {Encode(WorkerAddress{Bytes(50)})},           // what belongs to messages
      {longer},
  };
  for (const std::vector<Bytes>& messages : wrong) {
    ControlSocket socket = GreetRaw().control;
    for (const Bytes& message : messages) {
      socket.Send(message);
      if (&message == &messages.front() && message == request) Decode<Granted>(AwaitMessage(socket));
    }
    ExpectCut(socket);
  }
  ControlSocket unread = ControlSocket::Connect(PublisherAddress(), Soon());
  unread.Send(Encode(Hello{kVersion, PublisherAddress().key, true, HostIdentity::Mine()}));
  Decode<Welcome>(AwaitMessage(unread));
  unread.Send(request);  // before it has said that it can read
  ExpectCut(unread);
  ExpectServing();
}

TEST_F(UcxReading, AreCutForWhoeverHasTooMuchUnderWay) {
  ControlSocket socket = GreetRaw().control;
  EXPECT_THROW(
      {
        for (std::uint64_t i = 1; i < 2 * kMaxRequestsUnderWay; ++i) {
          socket.Send(Encode(Request{i, 1, {Region{1, 0, 5, 1, 5}}}));
          Decode<Granted>(AwaitMessage(socket));
        }
      },
      Error);
  ExpectServing();
}

}  // namespace
}  // namespace layercast::ucx_channel
