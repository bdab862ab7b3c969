#include "src/zmq/message_limit.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/zmq/poll_sockets.h"
#include "tests/support/raw_zmtp.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kMost = 1 << 20;
constexpr std::chrono::seconds kPatience{20};

class MessageLimitTest : public ::testing::Test {
 protected:
  MessageLimitTest() { socket_.bind("tcp://127.0.0.1:*"); }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }

  // Takes what is there, and says whether a connection was ended then.
  bool Take() {
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, MessageMeter::kLook);
    for (zmq::message_t frame; socket_.recv(frame, zmq::recv_flags::dontwait);) {
      if (frame.more()) continue;
      limit_.Heard(frame);
      ++taken_;
    }
    return limit_.Enforce();
  }
  // Until `done`. How many connections were ended.
  template <typename T>
  int TakeUntil(const std::future<T>& done) {
    int ended = 0;
    while (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) ended += Take() ? 1 : 0;
    return ended;
  }

  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  MessageLimit limit_{context_, socket_, kMost};
  int taken_ = 0;
};

TEST_F(MessageLimitTest, EndsTheConnectionOfAMessageWithoutAnEnd) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  EXPECT_EQ(TakeUntil(cut), 1);
  EXPECT_TRUE(cut.get());
  EXPECT_EQ(taken_, 0);
  EXPECT_EQ(limit_.Complaint(), "a message has not ended within 1048576 bytes");
  socket_.close();
}

// Connections take turns: one that sends without a pause keeps no other's message without an end from being noticed.
TEST_F(MessageLimitTest, EndsTheConnectionOfAMessageWithoutAnEndThoughOthersAreNeverAllTaken) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  zmq::context_t context;
  zmq::socket_t peer(context, zmq::socket_type::dealer);
  peer.connect(endpoint());
  int ended = 0;
  while (cut.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    peer.send(zmq::message_t(10), zmq::send_flags::none);
    zmq::message_t id, body;
    ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
    limit_.Heard(body);
    ended += limit_.Enforce(/*all_taken=*/false) ? 1 : 0;
  }
  EXPECT_EQ(ended, 1);
  EXPECT_TRUE(cut.get());
  peer.close();
  socket_.close();
}

TEST_F(MessageLimitTest, JudgesNoConnectionBeforeEachHasHadItsTurn) {
  std::future<bool> cut = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at).IsCut(); });
  const Deadline enough = Deadline::After(4 * MessageMeter::kLook);
  while (!enough.Passed()) EXPECT_FALSE(limit_.Enforce(/*all_taken=*/false));  // nothing was taken
  EXPECT_EQ(TakeUntil(cut), 1);
  EXPECT_TRUE(cut.get());
  socket_.close();
}

TEST_F(MessageLimitTest, LeavesLongMessagesAlone) {
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
  EXPECT_EQ(TakeUntil(sent), 0);
  const int messages = sent.get();
  for (const Deadline end = Deadline::After(kPatience); taken_ < messages && !end.Passed();) EXPECT_FALSE(Take());
  EXPECT_EQ(taken_, messages);
  socket_.close();
}

}  // namespace
}  // namespace layercast::testing
