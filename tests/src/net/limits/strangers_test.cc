// What strangers cost a socket that listens, by raw connections that mean it ill: some begin a handshake and no more,
// some a message that never ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "src/net/limits/connection_limits.h"
#include "src/net/zmq/poll_sockets.h"
#include "tests/support/fakes/raw_peer.h"
#include "tests/support/fakes/raw_zmtp.h"

namespace layercast::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kLongest = 1 << 20;
constexpr std::chrono::seconds kInTime{30};
constexpr milliseconds kNever{600'000};

class StrangersTest : public ::testing::Test {
 protected:
  void Listen(ConnectionLimits::Options options) {
    options.most_bytes = kLongest;
    if (!options.handshakes) options.handshakes = HandshakeBounds{.time = kNever};
    limits_.emplace(context_, socket_, options);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kLongest));
    socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
    socket_.bind("tcp://127.0.0.1:*");
  }
  void TearDown() override { socket_.close(); }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }

  void Take() {
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, limits_->look());
    for (zmq::message_t frame; socket_.recv(frame, zmq::recv_flags::dontwait);) {
      if (frame.more()) continue;
      limits_->Heard(frame);
      heard_.push_back(frame.size());
    }
    if (const std::string why = limits_->Enforce(); !why.empty()) why_ += why + "\n";
  }
  template <typename Done>
  [[nodiscard]] bool Until(const Done& done) {
    for (const Deadline deadline = Deadline::After(kInTime); !deadline.Passed(); Take()) {
      if (done()) return true;
    }
    return done();
  }
  // A client that says `bytes` bytes, from `address`.
  zmq::socket_t Speak(std::size_t bytes, const std::string& address = "127.0.0.1") {
    zmq::socket_t peer(peers_, zmq::socket_type::dealer);
    peer.set(zmq::sockopt::linger, 0);
    peer.connect("tcp://" + address + ":0;" + endpoint().substr(6));
    peer.send(zmq::message_t(bytes), zmq::send_flags::none);
    return peer;
  }

  zmq::context_t context_;
  zmq::context_t peers_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  std::vector<std::size_t> heard_;  // the bytes of messages
  std::string why_;
};

TEST_F(StrangersTest, ThatSayNothingAreCutTheOldestFirstAndSixteenOfAnAddressMayStay) {
  Listen({});
  std::deque<RawPeer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(endpoint());
  ASSERT_TRUE(Until([&] { return limits_->size() == 16 && silent[183].IsCut(); }));
  for (std::size_t i = 0; i < silent.size(); ++i) EXPECT_EQ(silent[i].IsCut(), i < 184) << i;
  EXPECT_THAT(why_, AllOf(HasSubstr("127.0.0.1:"), HasSubstr("at most 64 unfinished handshakes, 16 of them from one")));
}

TEST_F(StrangersTest, KeepNobodyOut) {
  Listen({});
  std::deque<RawPeer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(endpoint());
  const zmq::socket_t good = Speak(10);
  ASSERT_TRUE(Until([&] { return heard_.size() == 1; }));
  ASSERT_TRUE(Until([&] { return limits_->size() == 17; })) << "it stays, and 16 others";
  const zmq::socket_t another = Speak(10);
  EXPECT_TRUE(Until([&] { return heard_.size() == 2; }));
}

// Of an engine that is idle, say: nobody knows when it will ask for something.
TEST_F(StrangersTest, AreNotThoseThatHaveGreetedAndWait) {
  Listen({.handshakes = HandshakeBounds{.most = 2, .time = kNever, .grace = milliseconds(0)}});
  std::vector<RawZmtp> quiet;
  for (int i = 0; i < 8; ++i) {
    std::future<RawZmtp> one = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at); });
    ASSERT_TRUE(Until([&] { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    quiet.push_back(one.get());
  }
  for (const Deadline enough = Deadline::After(5 * MessageMeter::kLook); !enough.Passed();) Take();
  EXPECT_EQ(limits_->size(), 8U);
  EXPECT_EQ(why_, "");
}

TEST_F(StrangersTest, HaveOnlySoLongForTheirHandshakeHoweverTheyDripIt) {
  Listen({.handshakes = HandshakeBounds{.time = milliseconds(500)}});
  const RawPeer silent(endpoint());
  const RawPeer drips(endpoint());
  const std::string greeting = ZmtpGreeting("NULL").substr(0, 40);
  std::size_t sent = 0;
  EXPECT_TRUE(Until([&] {
    if (sent < greeting.size()) drips.Send(greeting.substr(sent++, 1));
    return silent.IsCut() && drips.IsCut();
  }));
}

TEST_F(StrangersTest, WhoseMessageDripsAreCutAndNobodyElseIs) {
  Listen({.patience = milliseconds(1000)});
  RawZmtp waits = [&] {
    std::future<RawZmtp> one = std::async(std::launch::async, [at = endpoint()] { return RawZmtp::Connect(at); });
    EXPECT_TRUE(Until([&] { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
    return one.get();
  }();
  const zmq::socket_t good = Speak(10);
  ASSERT_TRUE(Until([&] { return heard_.size() == 1; }));
  const RawPeer drips(endpoint());
  const std::string ready = std::string("\4\x1C\x05READY\x0BSocket-Type\0\0\0\6", 24) + "DEALER";
  const std::string long_frame("\2\0\0\0\0\0\x08\0\0", 9);  // of 512 KiB
  drips.Send(ZmtpGreeting("NULL") + ready + long_frame + std::string(16 << 10, 'x'));
  EXPECT_TRUE(Until([&] {
    drips.Send("x");
    return drips.IsCut();
  }));
  EXPECT_THAT(why_, HasSubstr("or drips"));
  EXPECT_EQ(limits_->size(), 2U);
}

// A thousandth of what 1024 connections of 32 MiB would be.
TEST_F(StrangersTest, WhoseMessagesFillTheBudgetAreCutAndTheLargeMessageOfAnotherComesThrough) {
  constexpr std::uint64_t kBudget = 4 << 20;
  Listen({.budget = kBudget});
  std::vector<std::future<std::size_t>> cut;
  for (int i = 0; i < 32; ++i) {
    cut.push_back(std::async(std::launch::async, [at = endpoint()] {
      RawZmtp peer = RawZmtp::Connect(at);
      peer.SendPartOfAFrame(kLongest, kLongest / 2);
      return peer.ReadToTheEnd();
    }));
  }
  const auto ended = [&] {
    return std::ranges::count_if(
        cut, [](const auto& one) { return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  };
  ASSERT_TRUE(Until([&] { return ended() >= 24; })) << "eight of them fill it";
  EXPECT_THAT(why_, HasSubstr("expected at most 4194304 bytes of all connections' messages"));
  const zmq::socket_t good = Speak(kLongest - 100, "127.0.0.2");
  ASSERT_TRUE(Until([&] { return !heard_.empty(); }));
  EXPECT_EQ(heard_.front(), kLongest - 100);
  EXPECT_TRUE(Until([&] { return limits_->unhandled() <= kBudget; })) << "by the next look";
  socket_.close();  // which ends the others
}

// A process has several sockets: the one with least to say for it pays for none of the others.
TEST_F(StrangersTest, WhoseMessagesFillTheBudgetAtOneSocketAreCutAlthoughTheLastCameToAnother) {
  Listen({.budget = 1 << 20});
  zmq::socket_t other(context_, zmq::socket_type::router);
  {
    ConnectionLimits other_limits(context_, other,
                                  {.most_bytes = kLongest, .handshakes = HandshakeBounds{.time = kNever}});
    other.bind("tcp://127.0.0.1:*");
    const auto half_a_message_to = [](const std::string& at, std::size_t bytes) {
      return std::async(std::launch::async, [at, bytes] {
        RawZmtp peer = RawZmtp::Connect(at);
        peer.SendPartOfAFrame(kLongest, bytes);
        return peer.ReadToTheEnd();
      });
    };
    const auto ended = [](const auto& one) {
      return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
    const auto big = half_a_message_to(endpoint(), kLongest * 5 / 8);
    ASSERT_TRUE(Until([&] { return limits_->unhandled() >= kLongest / 2; }));
    const auto small = half_a_message_to(other.get(zmq::sockopt::last_endpoint), kLongest / 2);
    EXPECT_TRUE(Until([&] {
      EXPECT_EQ(other_limits.Enforce(), "");
      return ended(big);
    }));
    EXPECT_FALSE(ended(small));
    EXPECT_EQ(other_limits.size(), 1U);
    other.close();
  }
}

// They are no longer ZeroMQ's, but not handled either.
TEST_F(StrangersTest, PayForWhatWasHeardAndWaits) {
  Listen({.budget = 1 << 20});
  const zmq::socket_t one = Speak(10);
  zmq::message_t id, body;
  ASSERT_TRUE(socket_.recv(id) && socket_.recv(body));
  limits_->Heard(body);
  const PeerConnection connection = limits_->ConnectionOf(body);
  limits_->Hold(connection, 2 << 20);
  ASSERT_TRUE(Until([&] { return limits_->size() == 0; }));
  EXPECT_GE(limits_->unhandled(), 2U << 20) << "until it is let go of";
  limits_->Release(connection, 2 << 20);
  EXPECT_TRUE(Until([&] { return limits_->unhandled() == 0; }));
}

}  // namespace
}  // namespace layercast::testing
