#include "src/net/limits/connection_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/net/zmq/poll_sockets.h"
#include "tests/support/fakes/raw_zmtp.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::size_t kMost = 1 << 20;
constexpr std::chrono::seconds kPatience{20};

class ConnectionLimitsTest : public ::testing::Test {
 protected:
  // Listens, with these limits.
  void Listen(const ConnectionLimits::Options& options, const std::string& endpoint = "tcp://127.0.0.1:*") {
    limits_.emplace(context_, socket_, options);
    // Linger has an end, as at all sockets that listen. Without one a context may never end: where a connection ends
    // while input waits at the high-water mark, libzmq 4.3 reads nothing any more of what is to be sent over it.
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind(endpoint);
  }
  void SetUp() override { Listen({.most_bytes = kMost}); }
  void TearDown() override { socket_.close(); }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }

  // Takes what is there, and returns why a connection was ended then; empty: none was.
  std::string Take() {
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, MessageMeter::kLook);
    for (zmq::message_t frame; socket_.recv(frame, zmq::recv_flags::dontwait);) {
      if (frame.more()) continue;
      limits_->Heard(frame);
      ++taken_;
    }
    return limits_->Enforce();
  }
  // Until `done`. Why connections were ended.
  template <typename T>
  std::vector<std::string> TakeUntil(const std::future<T>& done) {
    std::vector<std::string> why;
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      if (std::string said = Take(); !said.empty()) why.push_back(std::move(said));
    }
    return why;
  }

  zmq::context_t context_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  int taken_ = 0;
};

TEST_F(ConnectionLimitsTest, EndsTheConnectionOfAMessageWithoutAnEnd) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  EXPECT_THAT(TakeUntil(cut), ElementsAre(HasSubstr("a message has not ended within 1048576 bytes")));
  EXPECT_TRUE(cut.get());
  EXPECT_EQ(taken_, 0);
}

// Connections take turns: one that sends without a pause keeps no other's message without an end from being noticed.
TEST_F(ConnectionLimitsTest, EndsTheConnectionOfAMessageWithoutAnEndThoughOthersAreNeverAllTaken) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  zmq::context_t context;
  zmq::socket_t peer(context, zmq::socket_type::dealer);
  peer.connect(endpoint());
  int ended = 0;
  while (cut.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    peer.send(zmq::message_t(10), zmq::send_flags::none);
    zmq::message_t id, body;
    ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
    limits_->Heard(body);
    ended += limits_->Enforce(/*all_taken=*/false).empty() ? 0 : 1;
  }
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(cut.get());
  peer.close();
}

TEST_F(ConnectionLimitsTest, JudgesNoConnectionBeforeEachHasHadItsTurn) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  const Deadline enough = Deadline::After(4 * MessageMeter::kLook);
  while (!enough.Passed()) EXPECT_EQ(limits_->Enforce(/*all_taken=*/false), "");  // nothing was taken
  EXPECT_THAT(TakeUntil(cut), SizeIs(1));
  EXPECT_TRUE(cut.get());
}

TEST_F(ConnectionLimitsTest, LeavesLongMessagesAlone) {
  std::future<int> sent = std::async(std::launch::async, [at = endpoint()] {
    zmq::context_t context;
    zmq::socket_t peer(context, zmq::socket_type::dealer);
    peer.connect(at);
    int messages = 0;
    for (const Deadline enough = Deadline::After(6 * MessageMeter::kLook); !enough.Passed(); ++messages) {
      peer.send(zmq::message_t(kMost / 2), zmq::send_flags::sndmore);
      peer.send(zmq::message_t(kMost / 2), zmq::send_flags::none);
    }
    return messages;
  });
  EXPECT_THAT(TakeUntil(sent), IsEmpty());
  const int messages = sent.get();
  for (const Deadline end = Deadline::After(kPatience); taken_ < messages && !end.Passed();) EXPECT_EQ(Take(), "");
  EXPECT_EQ(taken_, messages);
}

// No connection may pause in a large message; others may stay silent for as long as they like.
class ImpatientLimitsTest : public ConnectionLimitsTest {
 protected:
  void SetUp() override { Listen({.most_bytes = kMost, .patience = std::chrono::milliseconds(0)}); }
};

TEST_F(ImpatientLimitsTest, EndTheConnectionOfAMessageThatDoesNotGoOn) {
  const RawZmtp silent = RawZmtp::Connect(endpoint());
  std::future<std::size_t> cut = std::async(std::launch::async, [at = endpoint()] {
    RawZmtp peer = RawZmtp::Connect(at);
    peer.SendPartOfAFrame(kMost, kMost / 2);
    return peer.ReadToTheEnd();
  });
  EXPECT_THAT(TakeUntil(cut), ElementsAre(HasSubstr("or has paused for 0 ms")));
  EXPECT_EQ(cut.get(), 0U);
}

// A connection that is none of ZeroMQ's, one end of which has the descriptor `fd`.
class Stranger {
 public:
  explicit Stranger(int fd) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    auto* const raw = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(listener.get(), raw, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), raw, &length), 0);
    EXPECT_EQ(::connect(sends_.get(), raw, length), 0);
    const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(::dup2(accepted.get(), fd), fd);
    takes_ = UniqueFd(fd);
  }
  // Moves a MiB over it. False if the connection has ended.
  bool Moves() {
    std::string some(1 << 16, 'x');
    for (int i = 0; i < 16; ++i) {
      const auto size = static_cast<ssize_t>(some.size());
      if (::send(sends_.get(), some.data(), some.size(), MSG_NOSIGNAL) != size) return false;
      if (::recv(takes_.get(), some.data(), some.size(), MSG_WAITALL) != size) return false;
    }
    return true;
  }

 private:
  UniqueFd sends_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd takes_;
};

// The kernel gives the numbers of closed descriptors to others.
class ClosedConnectionTest : public ConnectionLimitsTest {
 protected:
  // Takes a message whose sender then goes. ZeroMQ has closed the connection when this returns, and the limits have not
  // looked meanwhile.
  zmq::message_t TakeOfOneThatGoes() {
    zmq::message_t id, body;
    {
      zmq::context_t context;
      zmq::socket_t peer(context, zmq::socket_type::dealer);
      peer.connect(endpoint());
      peer.send(zmq::message_t(10), zmq::send_flags::none);
      EXPECT_TRUE(socket_.recv(id) && socket_.recv(body));
    }
    const PeerConnection connection(DescriptorOf(body));
    for (const Deadline patience = Deadline::After(kPatience); connection.IsOpen() && !patience.Passed();) {
    }
    EXPECT_FALSE(connection.IsOpen());
    return body;
  }
  static int DescriptorOf(zmq::message_t& frame) { return zmq_msg_get(frame.handle(), ZMQ_SRCFD); }
};

TEST_F(ClosedConnectionTest, IsNotTakenForTheOneThatHasGotItsDescriptor) {
  zmq::message_t body = TakeOfOneThatGoes();
  Stranger stranger(DescriptorOf(body));
  for (const Deadline enough = Deadline::After(4 * MessageMeter::kLook); !enough.Passed();) {
    ASSERT_TRUE(stranger.Moves());
    ASSERT_EQ(limits_->Enforce(), "");
  }
  EXPECT_EQ(limits_->size(), 0U);
}

TEST_F(ClosedConnectionTest, IsNotCutAnyMoreForAMessageThatIsJudgedLate) {
  zmq::message_t body = TakeOfOneThatGoes();
  Stranger stranger(DescriptorOf(body));
  limits_->Heard(body);
  limits_->ConnectionOf(body).Cut();
  EXPECT_TRUE(stranger.Moves());
}

// Whoever has ended it.
class EndOfConnectionTest : public ConnectionLimitsTest {
 protected:
  void SetUp() override {
    Listen({.most_bytes = kMost, .on_end = [this](const PeerConnection& ended) { ended_.push_back(ended); }});
  }
  std::vector<PeerConnection> ended_;
};

TEST_F(EndOfConnectionTest, IsToldOfOnce) {
  zmq::context_t context;
  zmq::socket_t stays(context, zmq::socket_type::dealer);
  stays.connect(endpoint());
  stays.send(zmq::message_t(10), zmq::send_flags::none);
  while (taken_ < 1) Take();
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  TakeUntil(cut);
  EXPECT_THAT(ended_, SizeIs(1)) << "by the limits";
  zmq::message_t id, body;
  {
    zmq::socket_t goes(context, zmq::socket_type::dealer);
    goes.connect(endpoint());
    goes.send(zmq::message_t(10), zmq::send_flags::none);
    ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
  }
  limits_->Heard(body);
  const Deadline patience = Deadline::After(kPatience);
  while (limits_->size() > 1 && !patience.Passed()) Take();
  EXPECT_THAT(ended_, SizeIs(2)) << "by its other end";
  stays.close();
}

class FewConnectionsTest : public ConnectionLimitsTest {
 protected:
  void SetUp() override { Listen({.most_bytes = kMost, .most_connections = 2}); }

  zmq::socket_t Speak() {
    zmq::socket_t peer(peers_, zmq::socket_type::dealer);
    peer.connect(endpoint());
    peer.send(zmq::message_t(10), zmq::send_flags::none);
    for (const int before = taken_; taken_ == before;) Take();
    return peer;
  }
  zmq::context_t peers_;
};

TEST_F(FewConnectionsTest, EndTheOldestThatHasSaidNothing) {
  const zmq::socket_t speaks = Speak();
  std::future<std::size_t> oldest =
      std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).ReadToTheEnd(); });
  while (limits_->size() < 2) EXPECT_EQ(Take(), "");
  std::future<std::size_t> next =
      std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).ReadToTheEnd(); });
  EXPECT_THAT(TakeUntil(oldest), ElementsAre(HasSubstr("expected at most 2 connections, got more")));
  const zmq::socket_t speaks_too = Speak();  // in the place of the other one that says nothing
  EXPECT_EQ(next.get(), 0U);
  EXPECT_EQ(taken_, 2);
}

class OneConnectionTest : public ConnectionLimitsTest {
 protected:
  void SetUp() override {
    socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
    Listen({.most_bytes = kMost, .most_connections = 1});
  }
};

// One that has gone is there until what it has said is taken.
TEST_F(OneConnectionTest, OfOneThatHasGoneIsEndedBeforeThatOfOneThatHasJustCome) {
  zmq::message_t id, body;
  {
    zmq::context_t context;
    zmq::socket_t peer(context, zmq::socket_type::dealer);
    peer.connect(endpoint());
    for (int message = 0; message < 10; ++message) peer.send(zmq::message_t(10), zmq::send_flags::none);
    ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
    limits_->Heard(body, body.size(), id.to_string_view());
  }
  zmq::context_t context;
  zmq::socket_t good(context, zmq::socket_type::dealer);
  good.set(zmq::sockopt::linger, 0);
  good.connect(endpoint());
  good.send(zmq::message_t(77), zmq::send_flags::none);
  std::string why;
  for (const Deadline patience = Deadline::After(kPatience); why.empty() && !patience.Passed();) {
    why = limits_->Enforce(/*all_taken=*/false);
  }
  EXPECT_THAT(why, HasSubstr("expected at most 1 connections, got more"));
  socket_.set(zmq::sockopt::rcvtimeo, 20'000);
  do ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
  while (body.size() != 77);
  EXPECT_TRUE(limits_->ConnectionOf(body).IsOpen());
}

TEST(PeerConnection, OfThisHostIsCutToo) {
  const TempFolder folder;
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::router);
  socket.bind("ipc://" + (folder / "socket").native());
  zmq::socket_t peer(context, zmq::socket_type::dealer);
  SocketEvents events(context, peer, ZMQ_EVENT_DISCONNECTED);
  peer.connect("ipc://" + (folder / "socket").native());
  peer.send(zmq::message_t(10), zmq::send_flags::none);
  zmq::message_t id, body;
  ASSERT_TRUE(socket.recv(id) && socket.recv(body));
  const PeerConnection connection(zmq_msg_get(body.handle(), ZMQ_SRCFD));
  EXPECT_EQ(connection.PeerName(), "process " + std::to_string(::getpid()));
  connection.Cut();
  const Deadline patience = Deadline::After(kPatience);
  while (!events.Next()) ASSERT_FALSE(patience.Passed());
  peer.close();
}

}  // namespace
}  // namespace layercast::testing
