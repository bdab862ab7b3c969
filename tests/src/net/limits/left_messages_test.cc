// Messages that a connection has left which has ended.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/net/limits/connection_limits.h"
#include "tests/support/fakes/raw_peer.h"

namespace layercast::testing {
namespace {

constexpr std::chrono::seconds kInPatience{20};

// What one has left that has gone comes when another may have its descriptor.
class LeftMessagesTest : public ::testing::Test {
 protected:
  struct Message {
    std::string from;
    zmq::message_t body;
  };
  void SetUp() override {
    limits_.emplace(context_, socket_, ConnectionLimits::Options{.most_bytes = 1 << 20});
    socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
    socket_.set(zmq::sockopt::linger, 0);  // see ConnectionLimitsTest
    socket_.set(zmq::sockopt::rcvtimeo, 20'000);
    socket_.bind("tcp://127.0.0.1:*");
  }
  void TearDown() override { socket_.close(); }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }
  static int DescriptorOf(zmq::message_t& frame) { return zmq_msg_get(frame.handle(), ZMQ_SRCFD); }
  Message Receive() {
    zmq::message_t id, body;
    EXPECT_TRUE(socket_.recv(id) && socket_.recv(body));
    limits_->Heard(body, body.size(), id.to_string_view());
    return {id.to_string(), std::move(body)};
  }
  PeerConnection BlamedFor(Message& message) { return limits_->Blamed(message.body, message.from); }
  void NextSays(int messages) const {
    for (int i = 0; i < messages; ++i) next_->Send(std::string("\0\3abc", 5));
  }

  // Of `gone_` two messages wait, and `next_` has got its descriptor, and both have greeted.
  void Replace() {
    {
      zmq::context_t context;
      zmq::socket_t peer(context, zmq::socket_type::dealer);
      peer.connect(endpoint());
      for (int i = 0; i < 3; ++i) peer.send(zmq::message_t(10), zmq::send_flags::none);
      Message first = Receive();
      EXPECT_TRUE(BlamedFor(first).IsOpen());
      gone_ = first.from;
      descriptor_ = DescriptorOf(first.body);
    }
    const PeerConnection connection(descriptor_);
    for (const Deadline patience = Deadline::After(kInPatience); connection.IsOpen() && !patience.Passed();) {
    }
    std::vector<UniqueFd> lower;  // the kernel gives the lowest that is free
    while (lower.empty() || lower.back().get() < descriptor_) lower.emplace_back(::dup(STDERR_FILENO));
    next_.emplace(endpoint(), [&] { lower.pop_back(); });
    next_->Send(ZmtpGreeting("NULL") + std::string("\4\x1C\x05READY\x0BSocket-Type\0\0\0\6", 24) + "DEALER");
    EXPECT_TRUE(next_->Hears("READY"));
    const Deadline patience = Deadline::After(kInPatience);
    const auto is_there = [&] { return PeerConnection(descriptor_).IsOpen() && limits_->size() == 1; };
    while (!is_there() && !patience.Passed()) EXPECT_EQ(limits_->Enforce(/*all_taken=*/false), "");
    EXPECT_TRUE(is_there());
  }

  zmq::context_t context_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  std::optional<RawPeer> next_;
  std::string gone_;
  int descriptor_ = -1;
};

TEST_F(LeftMessagesTest, AreNotBlamedOnWhoeverHasGotTheirDescriptor) {
  Replace();
  NextSays(1);
  int left = 0;
  for (int i = 0; i < 3; ++i) {
    Message message = Receive();
    ASSERT_EQ(DescriptorOf(message.body), descriptor_);
    left += message.from == gone_ ? 1 : 0;
    EXPECT_TRUE(limits_->ConnectionOf(message.body).IsOpen()) << "ZeroMQ tells the descriptor alone";
    EXPECT_FALSE(BlamedFor(message).IsOpen()) << i;
  }
  EXPECT_EQ(left, 2);
  EXPECT_EQ(limits_->Enforce(/*all_taken=*/true), "");
  NextSays(1);
  Message message = Receive();
  EXPECT_TRUE(BlamedFor(message).IsOpen()) << "nothing was left";
  message.from = gone_;
  EXPECT_FALSE(BlamedFor(message).IsOpen());
}

TEST_F(LeftMessagesTest, AreFewSoWhoeverSaysMoreIsKnown) {
  Replace();
  NextSays(8);
  bool known = false;
  for (int of_next = 0; of_next < 8;) {
    Message message = Receive();
    if (message.from != gone_) ++of_next;
    known = BlamedFor(message).IsOpen();
    EXPECT_FALSE(known && (message.from == gone_ || of_next < 4)) << of_next;
  }
  EXPECT_TRUE(known);
}

}  // namespace
}  // namespace layercast::testing
