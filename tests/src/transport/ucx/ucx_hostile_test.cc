// The ucx channel against peers that break its protocol, and what UCX chose for it. They lose their connection, and
// nobody else notices.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <list>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/transport/ucx/wire/settings.h"
#include "src/transport/ucx/wire/ucx_link.h"
#include "src/transport/ucx/wire/ucx_messages.h"
#include "tests/conformance/published_bytes.h"
#include "tests/src/transport/ucx/ucx_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"

namespace layercast::ucx_channel {
namespace {

using test::Fetch;
using test::FetchOne;
using test::kPatience;

constexpr std::array<std::size_t, 1> kSizes{8 << 20};

class UcxPublisher : public ::testing::Test {
 protected:
  ControlAddress PublisherAddress() const { return ControlAddress::Parse("ucx", publisher_->address()); }
  Hello RightHello() const { return {kVersion, PublisherAddress().key, false, HostIdentity::Mine()}; }
  ControlSocket ConnectRaw() const { return ControlSocket::Connect(PublisherAddress(), Soon()); }
  // What came to a receiver by UCX.
  struct Came {
    std::size_t messages = 0;
    std::size_t bytes = 0;  // beside the headers
  };
  static ucs_status_t Count(void* came, const void* /*header*/, std::size_t /*header_length*/, void* /*data*/,
                            std::size_t length, const ucp_am_recv_param_t* /*param*/) {
    if (came == nullptr) return UCS_OK;
    ++static_cast<Came*>(came)->messages;
    static_cast<Came*>(came)->bytes += length;
    return UCS_OK;
  }
  // Says HELLO and ADDRESS as a receiver does. `came`: what is counted as it comes; null: nothing is.
  ControlSocket ConnectAndGreet(std::optional<UcxLink>& link, Came* came = nullptr) const {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(RightHello()));
    const Welcome welcome = Decode<Welcome>(AwaitMessage(socket));
    link.emplace(welcome.lanes, socket.Device(), &Count, came);
    link->Connect(welcome.address);
    socket.Send(Encode(WorkerAddress{link->Address()}));
    return socket;
  }
  static void WorkUntilNothingComes(UcxLink& link) {
    for (int idle = 0; idle < 1000; idle = link.Progress() ? 0 : idle + 1) std::this_thread::yield();
  }
  void ExpectServing() {
    const auto receiver = transport_->Connect(publisher_->address(), Soon());
    Fetch fetch({{0, 1, 99'999, 1, 99'999}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }

  std::unique_ptr<Transport> transport_ = test::TransportNamed("ucx");
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering({});
  test::PublishedBytes published_{*publisher_, 1, kSizes};
};

TEST_F(UcxPublisher, CutsWhoeverGreetsItWrongly) {
  const Hello right = RightHello();
  Hello other_key = right;
  other_key.key = RandomToken();
  Hello no_version = right;
  no_version.version = 0;
  Bytes longer = Encode(right);
  longer.push_back(std::byte{0});
  for (const Bytes& message :
       {Bytes{}, Bytes{std::byte{99}}, Encode(other_key), Encode(no_version), longer, Encode(Bare{Kind::kPing}),
        Encode(Request{1, 1, {}}), Encode(WorkerAddress{Bytes(50)}), Bytes(kMaxRequestBytes + 1, std::byte{1})}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(message);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(UcxPublisher, CutsWhoeverHasNoKeyOrOneThatIsUsedUp) {
  const Hello used_up = RightHello();
  for (int i = 0; i < Invitations::kConnections; ++i) {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(used_up));
    Decode<Welcome>(AwaitMessage(socket));
  }
  Hello without = RightHello();
  without.key = {};
  for (const Hello& hello : {used_up, without}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(hello));
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(UcxPublisher, CutsTheConnectionsOfASessionThatHasEndedAndNoOthers) {
  const std::string address = publisher_->address();
  const auto receiver = transport_->Connect(address, Soon());
  const auto other = transport_->Connect(publisher_->address(), Soon());
  Fetch fetch({{0, 1, 99'999, 1, 99'999}});
  ASSERT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  publisher_->TakeBack(address);
  const std::string lost = layercast::testing::ErrorOf([&] { FetchOne(*receiver, 1, fetch); }, ErrorCode::kUnavailable);
  EXPECT_NE(lost.find("lost"), std::string::npos) << lost;
  EXPECT_THROW(static_cast<void>(transport_->Connect(address, Soon())), Error);
  Fetch still({{0, 5, 1000, 1, 1000}});
  EXPECT_TRUE(still.IsRight(FetchOne(*other, 1, still)));
}

TEST_F(UcxPublisher, CutsWhoeverAnswersItsWelcomeWrongly) {
  for (const Bytes& message :
       {Encode(WorkerAddress{}), Encode(WorkerAddress{Bytes(kMaxAddressBytes + 1)}), Encode(Request{1, 1, {}})}) {
    ControlSocket socket = ConnectRaw();
    socket.Send(Encode(RightHello()));
    Decode<Welcome>(AwaitMessage(socket));
    socket.Send(message);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(UcxPublisher, CutsWhoeverSendsGarbageOnceItIsServed) {
  Bytes huge_count = Encode(Request{1, 1, {}});
  std::fill(huge_count.begin() + 17, huge_count.begin() + 21, std::byte{0xFF});
  for (const Bytes& message : {Bytes{}, Bytes{std::byte{77}}, huge_count, Encode(Bare{Kind::kPong}),
                               Encode(WorkerAddress{Bytes(50)}), Encode(Read{1})}) {
    std::optional<UcxLink> link;
    ControlSocket socket = ConnectAndGreet(link);
    socket.Send(message);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(UcxPublisher, TakesNoActiveMessages) {
  std::optional<UcxLink> link;
  ControlSocket socket = ConnectAndGreet(link);
  const Bytes header = Encode(ActiveHeader{});
  for (const unsigned id : {0U, kActiveMessage, 2U, 1000U, 30'000U, 65'535U}) {
    ucp_request_param_t params{};
    const ucs_status_ptr_t request =
        ucp_am_send_nbx(link->endpoint(), id, header.data(), header.size(), header.data(), header.size(), &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
    link->Progress();
  }
  ExpectServing();
}

TEST_F(UcxPublisher, CutsWhoeverHasTooMuchUnderWay) {
  std::optional<UcxLink> link;
  ControlSocket socket = ConnectAndGreet(link);
  const Bytes request = Encode(Request{1, 1, {Region{0, 0, 8 << 20, 1, 8 << 20}}});
  for (std::size_t i = 0; i < kMaxRequestsUnderWay + 100; ++i) socket.Send(request);
  ExpectCut(socket);
  ExpectServing();
}

TEST_F(UcxPublisher, OwesOnePongToWhoeverDoesNotLetUcxWork) {
  Came came;
  std::optional<UcxLink> link;
  ControlSocket socket = ConnectAndGreet(link, &came);
  constexpr std::size_t kRounds = 3000;  // of the publisher's service, which takes 64 messages of one receiver in each
  for (std::size_t i = 0; i < 64 * kRounds; ++i) socket.Send(Encode(Bare{Kind::kPing}));
  socket.Send(Encode(Request{1, 99, {}}));
  for (; socket.unsent() > 0; std::this_thread::yield()) socket.Flush();
  EXPECT_EQ(Decode<Refusal>(AwaitMessage(socket)).code, ErrorCode::kNotFound);  // all were taken
  WorkUntilNothingComes(*link);
  EXPECT_GT(came.messages, 0U);
  EXPECT_LT(came.messages, kRounds / 2) << "what UCX's own queue holds, and one";
}

TEST_F(UcxPublisher, SendsOverSharedMemoryWhatWasAskedForAndNoByteMore) {
  Came came;
  std::optional<UcxLink> link;
  ControlSocket socket = ConnectAndGreet(link, &came);
  socket.Send(Encode(Request{1, 1, {Region{0, 7, 3'000'000, 1, 3'000'000}, Region{0, 5, 100, 50'000, 150}}}));
  for (const Deadline deadline = Soon(); came.bytes < 8'000'000 && !deadline.Passed();) link->Progress();
  WorkUntilNothingComes(*link);
  EXPECT_EQ(came.bytes, 8'000'000U);
  EXPECT_EQ(link->lane(), "posix/memory");
}

TEST_F(UcxPublisher, LivesThroughStrangersThatSayNothingOrNonsense) {
  std::vector<ControlSocket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(ConnectRaw());
  ExpectServing();
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xFF')}) {
    ControlSocket socket = ConnectRaw();
    EXPECT_GE(::send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(UcxPublisher, SharesMemoryOnOneHostAndListensForNobodyThere) {
  const auto receiver = transport_->Connect(publisher_->address(), Soon());
  EXPECT_EQ(receiver->lane(), "posix/memory");
}

TEST_F(UcxPublisher, TakesTheDeviceOfItsHostAndTheTransportOfTheEnvironment) {
  const Environment tcp("UCX_TLS", "tcp");
  const auto receiver = transport_->Connect(publisher_->address(), Soon());
  EXPECT_EQ(receiver->lane(), "tcp/lo");
  Fetch fetch({{0, 1, 7'999'999, 1, 7'999'999}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
}

TEST_F(UcxPublisher, SaysWhyItHasNoLanes) {
  const Environment no_device("UCX_NET_DEVICES", "none9");
  const Environment tcp("UCX_TLS", "tcp");
  try {
    transport_->Connect(publisher_->address(), Soon());
    ADD_FAILURE() << "connected without a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("it refused: UCX cannot be set up"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("(UCX_TLS=tcp, UCX_NET_DEVICES=none9 in its environment)"),
              std::string::npos)
        << error.what();
  }
}

TEST(UcxSettings, MemoryIsSharedOnlyWhereASleeperCanBeWoken) {
  const HostIdentity mine = HostIdentity::Mine();
  EXPECT_TRUE(ShareMemory(mine, mine));
  for (std::string HostIdentity::*part : {&HostIdentity::boot_id, &HostIdentity::network, &HostIdentity::user}) {
    HostIdentity theirs = mine;
    theirs.*part += "0";
    EXPECT_FALSE(ShareMemory(mine, theirs));
  }
}

std::string PrintedEndpoint() {
  UcxLink one(Lanes::kNetwork, "lo");
  UcxLink other(Lanes::kNetwork, "lo");
  one.Connect(other.Address());
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* stream = ::open_memstream(&text, &size);
  ucp_ep_print_info(one.endpoint(), stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> owned(text, &std::free);
  return {text, size};
}

TEST(UcxSettings, SegmentsAreOneMebibyteUnlessTheEnvironmentSaysOtherwise) {
  EXPECT_NE(PrintedEndpoint().find("..10485"), std::string::npos) << PrintedEndpoint();  // less a header
  const Environment small("UCX_TCP_TX_SEG_SIZE", "16K");
  EXPECT_EQ(PrintedEndpoint().find("..10485"), std::string::npos) << PrintedEndpoint();
}

// A publisher that greets as it should and then sends what a test wants.
class FakePublisher {
 public:
  struct Message {
    ActiveHeader header;
    std::size_t bytes;
  };
  // With `instead_of_pong`, not even the PONG comes that says that the lanes work: a stop is requested in its place.
  explicit FakePublisher(std::vector<Message> messages, std::optional<std::stop_source> instead_of_pong = {}) {
    address_.key = RandomToken();
    UniqueFd listener = Listen("127.0.0.1", address_);
    thread_ = std::jthread([this, messages = std::move(messages), instead_of_pong = std::move(instead_of_pong),
                            moved = std::move(listener)]() mutable {
      pollfd item{moved.get(), POLLIN, 0};
      ::poll(&item, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
      ControlSocket socket(UniqueFd(::accept4(moved.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      UcxLink link(Lanes::kSharedMemory, "lo");
      Serve(socket, link, messages, instead_of_pong);
    });
  }
  std::string address() const { return address_.Text(); }

 private:
  void Serve(ControlSocket& socket, UcxLink& link, const std::vector<Message>& messages,
             std::optional<std::stop_source>& instead_of_pong) {
    const Token token = RandomToken();
    AwaitMessage(socket);
    socket.Send(Encode(Welcome{kVersion, Lanes::kSharedMemory, token, link.Address(), {}}));
    link.Connect(Decode<WorkerAddress>(AwaitMessage(socket)).address);
    if (instead_of_pong) {
      instead_of_pong->request_stop();
    } else {
      Send(link, {{Kind::kPong, token, 0, 0}, 0});
    }
    try {
      for (bool asked = false;; link.Progress()) {
        if (!socket.Receive() || std::exchange(asked, true)) continue;
        for (Message message : messages) {
          if (message.header.token == Token{}) message.header.token = token;
          Send(link, message);
        }
      }
    } catch (const Error&) {  // the receiver has gone
    }
  }
  void Send(UcxLink& link, const Message& message) {
    ucp_request_param_t params{};
    const Bytes& header = headers_.emplace_back(Encode(message.header));
    const ucs_status_ptr_t request = ucp_am_send_nbx(link.endpoint(), kActiveMessage, header.data(), header.size(),
                                                     data_.data(), message.bytes, &params);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }

  ControlAddress address_{.channel = "ucx"};
  std::list<Bytes> headers_;
  Bytes data_ = Bytes(1 << 20, std::byte{1});
  std::jthread thread_;
};

FakePublisher::Message Piece(std::uint64_t ticket, std::uint64_t offset, std::size_t bytes) {
  return {{Kind::kPiece, {}, ticket, offset}, bytes};
}

void ExpectRefused(const std::vector<FakePublisher::Message>& messages) {
  const FakePublisher publisher(messages);
  const auto receiver = test::TransportNamed("ucx")->Connect(publisher.address(), Soon());
  constexpr std::size_t kAsked = 100'000;
  const std::vector<Region> regions = {{0, 0, kAsked, 1, kAsked}};
  Bytes destination(2 * kAsked, std::byte{0x5A});
  receiver->Submit({7, 1, regions, destination});
  try {
    while (receiver->Poll(Soon())) {
    }
    receiver->Poll(Soon());
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), ErrorCodeName(ErrorCode::kCorrupt)) << error.what();
  }
  receiver->Close();  // until then pieces that it did ask for may arrive
  for (std::size_t i = kAsked; i < destination.size(); ++i) ASSERT_EQ(destination[i], std::byte{0x5A});
}

TEST(UcxReceiver, RefusesPiecesThatItDidNotAskFor) {
  ExpectRefused({Piece(8, 0, 100'000)});                           // another ticket
  ExpectRefused({Piece(7, 0, 100'001)});                           // more than was asked for
  ExpectRefused({Piece(7, 60'000, 40'001)});                       // past the end
  ExpectRefused({Piece(7, ~std::uint64_t{0}, 10)});                // far past it
  ExpectRefused({Piece(7, 0, 60'000), Piece(7, 59'999, 40'001)});  // one byte twice
  ExpectRefused({Piece(7, 0, 100'000), Piece(7, 0, 100'000)});     // all of it twice
  ExpectRefused({Piece(7, 0, 0)});                                 // a piece of nothing
}

TEST(UcxReceiver, DropsWhatAStrangerSends) {
  FakePublisher::Message stranger = Piece(7, 0, 50'000);
  stranger.header.token = RandomToken();
  const FakePublisher publisher({stranger, Piece(7, 0, 50'000)});
  const auto receiver = test::TransportNamed("ucx")->Connect(publisher.address(), Soon());
  const std::vector<Region> regions = {{0, 0, 50'000, 1, 50'000}};
  Bytes destination(50'000);
  receiver->Submit({7, 1, regions, destination});
  EXPECT_TRUE(receiver->Poll(Soon()));
  EXPECT_EQ(destination, Bytes(50'000, std::byte{1}));
}

// Its wait for the lanes is ended when it has set up its own, however long that takes.
TEST(UcxReceiver, IsNotConnectedBeforeTheLanesWork) {
  const std::stop_source stop;
  const FakePublisher publisher({}, stop);
  try {
    test::TransportNamed("ucx")->Connect(publisher.address(), Soon().OrStop(stop.get_token()));
    ADD_FAILURE() << "it was connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDeadlineExceeded) << error.what();
    EXPECT_NE(std::string(error.what()).find("posix/memory"), std::string::npos) << error.what();
  }
}

TEST(UcxReceiver, NoticesAPublisherThatIsDeadButNotReaped) {
  test::ChildProcess publisher({test::FolderOfThisProgram() + "/conformance_peer", "offer", "ucx"});
  const auto receiver = test::TransportNamed("ucx")->Connect(publisher.ReadLine(), Soon());
  Fetch fetch({{0, 0, 1'000'000, 1, 1'000'000}});
  EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 7, fetch)));
  publisher.Signal(SIGKILL);
  EXPECT_THROW(
      {
        while (true) FetchOne(*receiver, 7, fetch);
      },
      Error);
  EXPECT_EQ(publisher.Wait(), 128 + SIGKILL);  // a zombie until here
}

}  // namespace
}  // namespace layercast::ucx_channel
