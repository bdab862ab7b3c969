// The nccl channel beside the conformance suite: device memory at either end, what NCCL does not allow, NCCL itself
// failing, and peers that break the protocol. Over the fakes of NCCL and of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/cuda/probe.h"
#include "src/transport/control_socket.h"
#include "src/transport/nccl/communicator.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/nccl_transport.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/fake_staging.h"

namespace layercast::nccl_channel {
namespace {

using layercast::testing::ErrorOf;
using test::Fetch;
using test::FetchOne;
using test::kPatience;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kSize = std::size_t{12} << 20;
constexpr std::array<std::size_t, 1> kSizes{kSize};

Deadline Soon() { return Deadline::After(kPatience); }

Bytes AwaitMessage(ControlSocket& socket) {
  for (const Deadline deadline = Soon(); !deadline.Passed();) {
    if (auto message = socket.Receive()) return *std::move(message);
    pollfd item{socket.fd(), POLLIN, 0};
    ::poll(&item, 1, static_cast<int>(deadline.Remaining().count()));
  }
  throw Error(ErrorCode::kDeadlineExceeded, "no message");
}

std::unique_ptr<Transport> TransportOf(const std::shared_ptr<NcclLibrary>& library,
                                       const std::shared_ptr<StagingDevice>& device) {
  return MakeNcclTransport([=] { return NcclParts{library, device}; });
}

// Waits for a communicator, or for what goes wrong with it.
void Settle(Communicator& communicator) {
  for (const Deadline deadline = Soon(); !communicator.Settled();) {
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it does not settle");
    std::this_thread::yield();
  }
}

class NcclChannel : public ::testing::Test {
 protected:
  std::unique_ptr<FetchingEnd> Connect() { return transport_->Connect(publisher_->address(), Soon()); }
  std::string WhyNotConnected(ErrorCode code) {
    return ErrorOf([&] { Connect(); }, code);
  }
  void ExpectServing() {
    const auto receiver = Connect();
    Fetch fetch({{0, 1, 99'999, 1, 99'999}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }

  std::shared_ptr<test::FakeNccl> library_ = std::make_shared<test::FakeNccl>();
  std::shared_ptr<test::FakeStaging> device_ = std::make_shared<test::FakeStaging>();
  std::unique_ptr<Transport> transport_ = TransportOf(library_, device_);
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering("127.0.0.1");
  test::PublishedBytes published_{*publisher_, 1, kSizes};
};

TEST_F(NcclChannel, TakesBytesFromDeviceMemoryAndBringsThemThere) {
  Buffer on_device(device_->device_memory(), kSize);
  Buffer pinned(device_->pinned_memory(), 100'000);
  Bytes pageable(100'000);
  Offer offer{2, {}};
  std::uint64_t tensor = 0;
  for (const std::span<std::byte> bytes : {on_device.span(), pinned.span(), std::span(pageable)}) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = test::PatternByte(0, tensor, i);
    offer.tensors.push_back({bytes.data(), bytes.size()});
    ++tensor;
  }
  publisher_->Add(offer);
  // Pieces of all three, one after the other, and short rows of each.
  const std::vector<Region> regions = {{2, 7, 50'000, 1, 50'000}, {0, 3, 5'000'000, 1, 5'000'000}, {2, 0, 10, 90, 1000},
                                       {1, 1, 99'999, 1, 99'999}, {0, 0, 700, 300, 30'000},        {1, 5, 3, 1000, 99}};
  const Bytes expected = test::ExpectedBytes(regions);
  Buffer destination(device_->device_memory(), expected.size());
  const auto receiver = Connect();
  receiver->Submit({1, 2, regions, destination.span()});
  ASSERT_TRUE(receiver->Poll(Soon()));
  EXPECT_EQ(std::memcmp(destination.data(), expected.data(), expected.size()), 0);
  Fetch to_host(regions);
  EXPECT_TRUE(to_host.IsRight(FetchOne(*receiver, 2, to_host)));
  publisher_->Remove(2);
}

TEST_F(NcclChannel, WhatTheDeviceIsToldToWriteIsThereWhenCloseReturns) {
  Buffer destination(device_->device_memory(), kSize);
  const std::vector<Region> regions = {{0, 0, kSize, 1, kSize}};
  for (int polls = 0; polls < 8; ++polls) {
    const auto receiver = Connect();
    receiver->Submit({1, 1, regions, destination.span()});
    for (int i = 0; i < polls; ++i) receiver->Poll(Deadline::After(std::chrono::milliseconds(0)));
    receiver->Close();
    std::memset(destination.data(), 0x5A, kSize);
    ExpectServing();
    for (const std::byte byte : destination.span()) ASSERT_EQ(byte, std::byte{0x5A});
  }
}

TEST_F(NcclChannel, VersionsThatDifferAreNamed) {
  const auto other = TransportOf(std::make_shared<test::FakeNccl>(NCCL_VERSION(2, 20, 5)), device_);
  EXPECT_THAT(ErrorOf([&] { other->Connect(publisher_->address(), Soon()); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("nccl: publisher at nccl://127.0.0.1:"), HasSubstr("the publisher's is 2.28.9"),
                    HasSubstr("the receiver's 2.20.5")));
  ExpectServing();
}

TEST_F(NcclChannel, OneGpuForBothEndsIsNamed) {
  const DeviceUuid uuid = RandomToken();
  const auto transport = TransportOf(library_, std::make_shared<test::FakeStaging>(uuid));
  const auto publisher = transport->Offering("127.0.0.1");
  EXPECT_THAT(ErrorOf([&] { transport->Connect(publisher->address(), Soon()); }, ErrorCode::kUnsupported),
              AllOf(HasSubstr("one end for a GPU"), HasSubstr(DeviceText(uuid))));
}

TEST_F(NcclChannel, SaysWhichNcclItGoesBy) { EXPECT_EQ(Connect()->lane(), "NCCL " + VersionText(NCCL_VERSION_CODE)); }

TEST_F(NcclChannel, ACommunicatorThatIsNeverSetUpEndsAtTheDeadline) {
  library_->never_settle = true;
  EXPECT_THAT(
      ErrorOf([&] { transport_->Connect(publisher_->address(), Deadline::After(std::chrono::milliseconds(200))); },
              ErrorCode::kDeadlineExceeded),
      AllOf(HasSubstr("communicator of epoch 1"), HasSubstr("nccl: publisher at")));
  library_->never_settle = false;
  ExpectServing();
}

TEST_F(NcclChannel, ALibraryThatFailsCostsTheConnectionAlone) {
  library_->fail_unique_id = true;
  WhyNotConnected(ErrorCode::kUnavailable);
  library_->fail_unique_id = false;
  library_->fail_init = true;
  WhyNotConnected(ErrorCode::kUnavailable);
  library_->fail_init = false;
  ExpectServing();
}

TEST_F(NcclChannel, AnErrorOfNcclIsUnavailableAndTheNextEpochGoesOn) {
  for (const int groups : {0, 1, 2, 3}) {
    const auto receiver = Connect();
    library_->groups_until_error = groups;
    Fetch fetch({{0, 0, kSize, 1, kSize}});
    const std::string error = ErrorOf(
        [&] {
          while (true) FetchOne(*receiver, 1, fetch);
        },
        ErrorCode::kUnavailable);
    EXPECT_THAT(error, HasSubstr("nccl: publisher at nccl://127.0.0.1:"));
    ErrorOf([&] { receiver->Poll(Soon()); }, ErrorCode::kUnavailable);
    ExpectServing();
  }
}

// What a receiver may say, byte by byte.
class NcclPublisher : public NcclChannel {
 protected:
  ControlAddress PublisherAddress() const { return ControlAddress::Parse("nccl", publisher_->address()); }
  Hello RightHello() const {
    return {kVersion, PublisherAddress().key, static_cast<std::uint32_t>(library_->version()), RandomToken()};
  }
  ControlSocket ConnectRaw() const { return ControlSocket::Connect(PublisherAddress(), Soon()); }
  ControlSocket ConnectAndGreet(std::optional<Communicator>& communicator) const {
    ControlSocket socket = ConnectRaw();
    socket.Send(EncodeHello(RightHello()));
    const Welcome welcome = DecodeWelcome(AwaitMessage(socket));
    communicator.emplace(*library_, *device_, welcome.id, kReceiverRank);
    Settle(*communicator);
    return socket;
  }
  static void ExpectCut(ControlSocket& socket) {
    EXPECT_THAT(ErrorOf(
                    [&] {
                      while (true) AwaitMessage(socket);
                    },
                    ErrorCode::kUnavailable),
                HasSubstr("the connection was lost"));
  }
};

TEST_F(NcclPublisher, CutsWhoeverGreetsItWrongly) {
  Hello other_key = RightHello();
  other_key.key = RandomToken();
  Hello no_version = RightHello();
  no_version.version = 0;
  Bytes longer = EncodeHello(RightHello());
  longer.push_back(std::byte{0});
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{99}}, EncodeHello(other_key), EncodeHello(no_version), longer,
                               EncodePing(), EncodeRequest(1, 1, {}), EncodeGo(1)}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(message);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsWhoeverSendsGarbageOnceItIsServed) {
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, EncodePong(), EncodeHello(RightHello()), EncodeGo(1)}) {
    std::optional<Communicator> communicator;
    ControlSocket socket = ConnectAndGreet(communicator);
    socket.Send(message);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(NcclPublisher, CutsWhoeverTakesMoreThanWasAnnounced) {
  std::optional<Communicator> communicator;
  ControlSocket socket = ConnectAndGreet(communicator);
  socket.Send(EncodeRequest(1, 1, std::array{Region{0, 0, kSize, 1, kSize}}));
  EXPECT_EQ(DecodePiece(AwaitMessage(socket)).bytes, kPieceBytes);
  for (std::size_t i = 0; i < 2; ++i) socket.Send(EncodeGo(kPiecesUnderWay));
  ExpectCut(socket);
  ExpectServing();
}

TEST_F(NcclPublisher, AnnouncesNoMoreThanItsStagingMemoryHolds) {
  std::optional<Communicator> communicator;
  ControlSocket socket = ConnectAndGreet(communicator);
  for (std::uint64_t ticket = 0; ticket < 4; ++ticket) {
    socket.Send(EncodeRequest(ticket, 1, std::array{Region{0, 0, kSize, 1, kSize}}));
  }
  for (std::size_t i = 0; i < kPiecesUnderWay; ++i) EXPECT_EQ(DecodeKind(AwaitMessage(socket)), Kind::kPiece);
  socket.Send(EncodePing());
  EXPECT_EQ(DecodeKind(AwaitMessage(socket)), Kind::kPong);  // and no further piece before it
}

TEST_F(NcclPublisher, CutsWhoeverHasTooMuchUnderWay) {
  std::optional<Communicator> communicator;
  ControlSocket socket = ConnectAndGreet(communicator);
  const Bytes request = EncodeRequest(1, 1, std::array{Region{0, 0, kSize, 1, kSize}});
  for (std::size_t i = 0; i < kMaxRequestsUnderWay + 100; ++i) socket.Send(request);
  ExpectCut(socket);
  ExpectServing();
}

// A publisher that greets as it should and then says and sends what a test wants.
class FakePublisher {
 public:
  // `sent`: what goes by NCCL for the first pieces that the receiver takes, as it takes them; none: nothing ever.
  FakePublisher(std::vector<Bytes> messages, std::vector<std::size_t> sent) {
    address_.key = RandomToken();
    UniqueFd listener = Listen("127.0.0.1", address_);
    thread_ = std::jthread([this, messages = std::move(messages), sent = std::move(sent),
                            moved = std::move(listener)](const std::stop_token& stop) {
      pollfd item{moved.get(), POLLIN, 0};
      ::poll(&item, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
      ControlSocket socket(UniqueFd(::accept4(moved.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      try {
        Serve(socket, messages, sent, stop);
      } catch (const Error&) {  // the receiver has gone
      }
    });
  }
  std::string address() const { return address_.Text(); }
  NcclParts parts() const { return {library_, device_}; }

 private:
  void Serve(ControlSocket& socket, const std::vector<Bytes>& messages, const std::vector<std::size_t>& sent,
             const std::stop_token& stop) {
    AwaitMessage(socket);  // HELLO
    const ncclUniqueId id = MakeUniqueId(*library_);
    Buffer memory(device_->device_memory(), kPieceBytes);
    const auto stream = device_->MakeStream();
    Communicator communicator(*library_, *device_, id, kPublisherRank);
    socket.Send(EncodeWelcome({kVersion, 1, id}));
    Settle(communicator);
    while (!stop.stop_requested()) {
      communicator.Settled();
      stream->Reached(stream->Mark());
      const auto message = socket.Receive();
      if (!message) continue;
      if (DecodeKind(*message) == Kind::kRequest) {
        for (const Bytes& answer : messages) socket.Send(answer);
      } else if (DecodeKind(*message) == Kind::kPing) {
        socket.Send(EncodePong());
      } else if (!sent.empty()) {
        std::vector<Transfer> transfers;
        for (const std::size_t bytes : sent) transfers.push_back({memory.data(), bytes});
        communicator.Send(transfers, *stream);
      }
    }
  }

  std::shared_ptr<test::FakeNccl> library_ = std::make_shared<test::FakeNccl>();
  std::shared_ptr<test::FakeStaging> device_ = std::make_shared<test::FakeStaging>();
  ControlAddress address_{.channel = "nccl"};
  std::jthread thread_;
};

std::string WhatBecomesOf(const std::vector<Bytes>& messages, const std::vector<std::size_t>& sent, ErrorCode code) {
  const FakePublisher publisher(messages, sent);
  const auto receiver = MakeNcclTransport([&] { return publisher.parts(); })->Connect(publisher.address(), Soon());
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
    std::vector<Bytes> messages;
    for (const Piece& piece : pieces) messages.push_back(EncodePiece(piece));
    EXPECT_THAT(WhatBecomesOf(messages, {}, ErrorCode::kCorrupt), HasSubstr("a piece that was not asked for"));
  }
}

TEST(NcclReceiver, RefusesMessagesThatNoPublisherSends) {
  WhatBecomesOf({Bytes{std::byte{77}}}, {}, ErrorCode::kCorrupt);
  WhatBecomesOf({EncodePing()}, {}, ErrorCode::kCorrupt);
  EXPECT_THAT(WhatBecomesOf({EncodeRefusal({7, ErrorCode::kNotFound, "gone"})}, {}, ErrorCode::kNotFound),
              HasSubstr("it refused: gone"));
}

TEST(NcclReceiver, APieceOfAnotherSizeThanAnnouncedIsAnErrorOfNccl) {
  EXPECT_THAT(WhatBecomesOf({EncodePiece({7, 0, 100'000})}, {99'999}, ErrorCode::kUnavailable),
              AllOf(HasSubstr("epoch 1"), HasSubstr("invalid usage")));
}

TEST(NcclReceiver, GivesUpAPublisherThatAnswersWhileNcclBringsNothing) {
  EXPECT_THAT(WhatBecomesOf({EncodePiece({7, 0, 100'000})}, {}, ErrorCode::kUnavailable),
              HasSubstr("NCCL has brought nothing for ten seconds"));
}

TEST(NcclTransport, SaysWhatIsMissingHere) {
  const auto transport = MakeNcclTransport(
      []() -> NcclParts { throw Error(ErrorCode::kUnsupported, "no CUDA device is here: the driver sleeps"); });
  std::string reason;
  EXPECT_FALSE(transport->Viable(HostIdentity::Mine(), HostIdentity::Mine(), reason));
  EXPECT_EQ(reason, "no CUDA device is here: the driver sleeps");
  EXPECT_EQ(transport->WhyNotHere(), reason);
  EXPECT_EQ(ErrorOf([&] { transport->Offering("127.0.0.1"); }, ErrorCode::kUnsupported), reason);
}

TEST(NcclTransport, IsLeftOutWhereThereIsNoDeviceUnlessItIsNamed) {
  if (ProbeCuda()) GTEST_SKIP() << "there is a CUDA device";
  for (const auto& transport : TransportsNamed({})) EXPECT_NE(transport->name(), "nccl");
  EXPECT_THAT(ErrorOf([] { TransportsNamed(std::vector<std::string>{"zmq", "nccl"}); }, ErrorCode::kUnsupported),
              HasSubstr("channel 'nccl' cannot be used here: no CUDA device is here: "));
}

}  // namespace
}  // namespace layercast::nccl_channel
