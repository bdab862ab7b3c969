// The zmq channel against peers that break its protocol: they lose their connection, and nobody else notices.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <future>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "src/transport/zmq/zmq_messages.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/fakes/raw_zmtp.h"

namespace layercast::zmq_channel {
namespace {

using test::Fetch;
using test::FetchOne;
using test::kPatience;

constexpr std::array<std::size_t, 1> kSizes{8 << 20};
using Bytes = std::vector<std::byte>;

Deadline Soon() { return Deadline::After(kPatience); }

Bytes Of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

class ZmqPublisher : public ::testing::Test {
 protected:
  // A DEALER with nothing to stop it.
  zmq::socket_t ConnectRaw() {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::reconnect_ivl, -1);
    socket.set(zmq::sockopt::sndtimeo, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    socket.set(zmq::sockopt::immediate, true);
    const std::string watch = "inproc://watch" + std::to_string(++watched_);
    if (zmq_socket_monitor(socket.handle(), watch.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) throw zmq::error_t();
    watch_ = zmq::socket_t(context_, zmq::socket_type::pair);
    watch_.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    watch_.connect(watch);
    socket.connect(publisher_->address());
    return socket;
  }
  void ExpectCut(zmq::socket_t& socket) {
    zmq::message_t event;
    EXPECT_TRUE(watch_.recv(event)) << "the connection still stands";
    zmq_socket_monitor(socket.handle(), nullptr, 0);
    watch_.close();
  }
  void ExpectServing() {
    const auto receiver = transport_->Connect(publisher_->address(), Soon());
    Fetch fetch({{0, 1, 99'999, 1, 99'999}});
    EXPECT_TRUE(fetch.IsRight(FetchOne(*receiver, 1, fetch)));
  }

  zmq::context_t context_;
  zmq::socket_t watch_;
  int watched_ = 0;
  std::unique_ptr<Transport> transport_ = test::TransportNamed("zmq");
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering({});
  test::PublishedBytes published_{*publisher_, 1, kSizes};
};

TEST_F(ZmqPublisher, CutsWhoeverSendsGarbage) {
  Bytes huge_count = Encode(Request{1, 1, {}});
  std::memset(huge_count.data() + 17, 0xFF, 4);
  Bytes longer = Encode(Bare{Kind::kPing});
  longer.push_back(std::byte{0});
  const std::vector<Bytes> wrong = {
      {},         Of({0}), Of({99}),          Of({1, 'L', 'C', 'Z', 'X', 1, 0}), Of({2, 1, 2, 3}),
      huge_count, longer,  Encode(Welcome{}), Encode(PieceHeader{1, 0, 5}),      Bytes(2 << 20)};
  for (const Bytes& message : wrong) {
    zmq::socket_t socket = ConnectRaw();
    ASSERT_TRUE(socket.send(zmq::buffer(message), zmq::send_flags::none));
    // Its descriptor was that of the connection before, whose message the first one might be: the next one is not.
    const Deadline soon = Soon();
    zmq::pollitem_t cut{watch_.handle(), 0, ZMQ_POLLIN, 0};
    while (zmq::poll(&cut, 1, std::chrono::milliseconds(20)) == 0 && !soon.Passed()) {
      socket.send(zmq::buffer(message), zmq::send_flags::dontwait);
    }
    ExpectCut(socket);
  }
  ExpectServing();
}

TEST_F(ZmqPublisher, CutsWhoeverSendsSeveralFrames) {
  zmq::socket_t socket = ConnectRaw();
  const Bytes ping = Encode(Bare{Kind::kPing});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(socket.send(zmq::buffer(ping), zmq::send_flags::sndmore));
  ASSERT_TRUE(socket.send(zmq::buffer(ping), zmq::send_flags::none));
  ExpectCut(socket);
  ExpectServing();
}

TEST_F(ZmqPublisher, CutsWhoeverSendsAMessageWithoutAnEnd) {
  EXPECT_TRUE(testing::RawZmtp::Connect(publisher_->address()).IsCut());
  ExpectServing();
}

// Others send so much that there is always a message to take. To refuse one costs more than to send one.
TEST_F(ZmqPublisher, CutsWhoeverSendsAMessageWithoutAnEndThoughOthersSendWithoutAPause) {
  const auto flood = [this](const std::stop_token& stop) {
    zmq::context_t context;
    zmq::socket_t socket(context, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.connect(publisher_->address());
    const Bytes request = Encode(Request{1, /*offer_id=*/99, {Region{0, 0, 1, 1, 1}}});
    while (!stop.stop_requested()) {
      for (int i = 0; i < 64; ++i) socket.send(zmq::buffer(request), zmq::send_flags::dontwait);
      for (zmq::message_t refusal; socket.recv(refusal, zmq::recv_flags::dontwait);) {
      }
    }
  };
  std::vector<std::jthread> flooding;
  for (int i = 0; i < 8; ++i) flooding.emplace_back(flood);
  EXPECT_TRUE(testing::RawZmtp::Connect(publisher_->address()).IsCut());
  flooding.clear();
  ExpectServing();
}

TEST_F(ZmqPublisher, CutsWhoeverHasTooMuchUnderWay) {
  zmq::socket_t socket = ConnectRaw();
  const Bytes request = Encode(Request{1, 1, {Region{0, 0, 8 << 20, 1, 8 << 20}}});
  ASSERT_TRUE(socket.send(zmq::buffer(request), zmq::send_flags::none));  // once it is connected
  // It may be cut before it has sent them all, and a socket without a connection takes nothing.
  for (std::size_t i = 1; i < kMaxRequestsUnderWay + 100; ++i) {
    socket.send(zmq::buffer(request), zmq::send_flags::dontwait);
  }
  ExpectCut(socket);
  ExpectServing();
}

TEST_F(ZmqPublisher, LivesThroughBytesThatAreNoZeroMq) {
  const std::string address = publisher_->address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100'000, '\xFF'), std::string()}) {
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_GE(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    ExpectServing();
  }
}

// `greeting` as the version before this one had it.
Bytes OfOldVersion(Bytes greeting) {
  greeting[greeting.size() - 2] = std::byte{kVersion - 1};
  return greeting;
}

TEST_F(ZmqPublisher, TellsAReceiverOfAnotherVersion) {
  zmq::socket_t socket = ConnectRaw();
  socket.send(zmq::buffer(OfOldVersion(Encode(Hello{}))));
  zmq::message_t answer;
  ASSERT_TRUE(socket.recv(answer));
  const Refusal refusal = Decode<Refusal>({static_cast<const std::byte*>(answer.data()), answer.size()});
  EXPECT_EQ(refusal.code, ErrorCode::kUnsupported);
  EXPECT_EQ(refusal.message, "this publisher speaks no version that old");
}

// A publisher that answers a HELLO, and the first REQUEST with what a test wants.
class FakePublisher {
 public:
  using Frames = std::vector<Bytes>;
  explicit FakePublisher(Frames welcome, std::vector<Frames> answers) : socket_(context_, zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 1000);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
    socket_.bind("tcp://127.0.0.1:*");
    address_ = socket_.get(zmq::sockopt::last_endpoint);
    thread_ = std::jthread([this, welcome = std::move(welcome), answers = std::move(answers)] {
      Answer(welcome);
      for (std::size_t i = 0; i < answers.size(); ++i) i == 0 ? Answer(answers[i]) : Send(answers[i]);
    });
  }
  const std::string& address() const { return address_; }

 private:
  void Answer(const Frames& frames) {
    zmq::message_t message;
    if (!socket_.recv(peer_) || !socket_.recv(message)) return;
    Send(frames);
  }
  void Send(const Frames& frames) {
    zmq::message_t to(peer_.data(), peer_.size());
    socket_.send(to, zmq::send_flags::sndmore);
    for (std::size_t i = 0; i < frames.size(); ++i) {
      socket_.send(zmq::buffer(frames[i]), i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
  zmq::message_t peer_;
  std::string address_;
  std::jthread thread_;
};

void ExpectRefused(ErrorCode code, const std::vector<FakePublisher::Frames>& answers) {
  const FakePublisher publisher({Encode(Welcome{})}, answers);
  const auto receiver = test::TransportNamed("zmq")->Connect(publisher.address(), Soon());
  const std::vector<Region> regions = {{0, 0, 100, 1, 100}};
  Bytes destination(200, std::byte{0x5A});
  try {
    receiver->Submit({7, 1, regions, destination});
    while (receiver->Poll(Soon())) {
    }
    receiver->Poll(Soon());
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(publisher.address()), std::string::npos) << error.what();
  }
  for (std::size_t i = 100; i < destination.size(); ++i) ASSERT_EQ(destination[i], std::byte{0x5A});
}

TEST(ZmqReceiver, RefusesPiecesThatItDidNotAskFor) {
  const auto expect_refused = [](const std::vector<std::pair<PieceHeader, std::size_t>>& pieces) {
    std::vector<FakePublisher::Frames> answers;
    for (const auto& [header, bytes] : pieces) {
      answers.push_back({Encode(header)});
      answers.push_back({Bytes(bytes)});
    }
    ExpectRefused(ErrorCode::kCorrupt, answers);
  };
  expect_refused({{{8, 0, 100}, 100}});                   // another ticket
  expect_refused({{{7, 0, 101}, 101}});                   // more than was asked for
  expect_refused({{{7, 50, 50}, 50}});                    // not the first
  expect_refused({{{7, 0, 60}, 60}, {{7, 60, 41}, 41}});  // past the end
  expect_refused({{{7, 0, 60}, 60}, {{7, 0, 60}, 60}});   // twice
  expect_refused({{{7, 0, 100}, 99}});                    // not what the header says
  expect_refused({{{7, ~std::uint64_t{0}, 1}, 1}});
}

TEST(ZmqReceiver, RefusesMessagesThatDoNotRead) {
  ExpectRefused(ErrorCode::kCorrupt, {{Bytes{}}});
  ExpectRefused(ErrorCode::kCorrupt, {{Of({77})}});
  ExpectRefused(ErrorCode::kCorrupt, {{Encode(PieceHeader{7, 0, 100})}, {Encode(Bare{Kind::kPong})}});  // no data
  ExpectRefused(ErrorCode::kCorrupt, {{Encode(Bare{Kind::kPong}), Bytes(10)}});                   // a frame too many
  ExpectRefused(ErrorCode::kCorrupt, {{Encode(PieceHeader{7, 0, 50}), Bytes(50)}});               // here too
  ExpectRefused(ErrorCode::kCorrupt, {{Encode(PieceHeader{7, 0, 50})}, {Bytes(50), Bytes(50)}});  // and here
  ExpectRefused(ErrorCode::kCorrupt, {{Of({132, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0})}});             // no such code
  ExpectRefused(ErrorCode::kUnavailable,
                {{Encode(PieceHeader{7, 0, 100})}, {Bytes(std::size_t{3} << 20)}});  // too long: cut
}

TEST(ZmqReceiver, CutsAPublisherWhoseMessageHasNoEnd) {
  const testing::RawZmtpServer::Listener listener;
  const auto cut = std::async(std::launch::async, [&] { return testing::RawZmtpServer(listener).IsCut(); });
  const std::string error =
      testing::ErrorOf([&] { test::TransportNamed("zmq")->Connect(listener.endpoint(), Soon()); });
  EXPECT_NE(error.find("a message has not ended within"), std::string::npos) << error;
}

TEST(ZmqReceiver, NamesAPublisherOfAnotherVersion) {
  const FakePublisher publisher({OfOldVersion(Encode(Welcome{}))}, {});
  EXPECT_THAT(testing::ErrorOf([&] { test::TransportNamed("zmq")->Connect(publisher.address(), Soon()); },
                               ErrorCode::kUnsupported),
              ::testing::HasSubstr("speaks no version of ours"));
}

TEST(ZmqReceiver, KnowsWhenItIsNotOurProtocol) {
  const FakePublisher publisher({Encode(Bare{Kind::kPing})}, {});
  EXPECT_THROW(test::TransportNamed("zmq")->Connect(publisher.address(), Soon()), Error);
}

}  // namespace
}  // namespace layercast::zmq_channel
