// Receivers that speak the protocol and mean it ill, over sockets: out of order, in part, under another's session, and
// gone at any moment. They get refusals or lose their connections; honest receivers beside them take the version bit
// for bit, from the publisher and from a relay.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "src/wire/frames.h"
#include "tests/fuzz/fuzz_inputs.h"
#include "tests/fuzz/hostile_words.h"
#include "tests/support/session/relaying.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

// One connection after the other, each for a few messages.
class HostileReceivers {
 public:
  HostileReceivers(const std::string& endpoint, std::uint32_t seed, const Schedule& schedule)
      : endpoint_(endpoint), words_(seed, schedule) {}

  // Fails the test if the other end does not answer any more.
  void Say(std::size_t messages) {
    while (said_ < messages && !::testing::Test::HasFailure()) Live();
  }

 private:
  static constexpr std::uint64_t kSessions = 3;
  static constexpr std::size_t kLivesOfAContext = 64;
  static constexpr std::size_t kMostVanish = 250;

  void Live() {
    if (lives_++ % kLivesOfAContext == 0) context_.emplace(1);  // which waits until all its sockets have let go
    zmq::socket_t socket(*context_, zmq::socket_type::dealer);
    // What was said may be lost with it, or not. A session whose receiver is gone without a word stays until its lease
    // is over, and a publisher takes so many and no more: so not all go like that.
    const bool vanishes = vanished_ < kMostVanish && words_.OneIn(2);
    if (vanishes) ++vanished_;
    socket.set(zmq::sockopt::linger, vanishes && words_.OneIn(2) ? 0 : 1'000);
    socket.set(zmq::sockopt::rcvtimeo, 20'000);
    socket.set(zmq::sockopt::sndtimeo, 20'000);
    socket.connect(endpoint_);
    for (std::size_t left = 1 + words_.Below(16); left > 0; --left) {
      if (!SayOne(socket)) return;
    }
    if (words_.OneIn(4)) ExpectAnAnswer(socket);
    for (std::uint64_t session = 1; session <= kSessions && !vanishes; ++session) Send(socket, session, wire::Bye{});
  }

  // False: this connection is given up.
  bool SayOne(zmq::socket_t& socket) {
    const std::uint64_t session = 1 + words_.Below(kSessions);
    if (words_.OneIn(4)) {
      Send(socket, session, words_.Hello(words_.OneIn(3) ? words_.Text() : ""));
      Send(socket, session, words_.Subscribe());
    }
    const std::vector<std::byte> bytes = words_.Bytes(session, words_.OfAReceiver());
    for (std::size_t times = words_.OneIn(8) ? 3 : 1; times > 0; --times) {
      ++said_;
      if (!socket.send(zmq::buffer(bytes))) return false;  // its messages were refused too often
    }
    zmq::message_t answer;
    while (words_.OneIn(2) && socket.recv(answer, zmq::recv_flags::dontwait)) CheckAnswer(answer);
    return true;
  }

  void Send(zmq::socket_t& socket, std::uint64_t session, const wire::Message& message) {
    ++said_;
    socket.send(zmq::buffer(wire::Encode({.session = session, .message = message})));
  }

  // A status is asked for outside any session, and is not refused: so it, or what was due before, comes to a connection
  // that was not cut.
  void ExpectAnAnswer(zmq::socket_t& socket) {
    zmq::socket_t other(*context_, zmq::socket_type::dealer);
    other.set(zmq::sockopt::linger, 0);
    other.set(zmq::sockopt::rcvtimeo, 20'000);
    other.connect(endpoint_);
    Send(other, 9, wire::StatusRequest{});
    zmq::message_t answer;
    ASSERT_TRUE(other.recv(answer)) << "the publisher does not answer any more, after " << said_ << " messages";
    CheckAnswer(answer);
    while (socket.recv(answer, zmq::recv_flags::dontwait)) CheckAnswer(answer);
  }

  static void CheckAnswer(const zmq::message_t& answer) {
    const wire::Frame frame = wire::Decode({static_cast<const std::byte*>(answer.data()), answer.size()});
    const auto* const refused = std::get_if<wire::Refused>(&frame.message);
    EXPECT_FALSE(refused != nullptr && refused->code == ErrorCode::kInternal) << refused->message;
  }

  std::optional<zmq::context_t> context_;
  std::size_t lives_ = 0;
  const std::string endpoint_;
  HostileWords words_;
  std::size_t said_ = 0;
  std::size_t vanished_ = 0;
};

class HostileReceiversTest : public SessionTest {
 protected:
  // Over ipc://, where connections that come and go by the thousand use up no ports.
  std::unique_ptr<OfferService> MakePublisher() {
    OfferServiceOptions options;
    options.endpoint = "ipc://" + (folder_ / "publisher").native();
    options.name = "publisher";
    options.max_sessions = 10'000;  // a session whose number was damaged hears no 'bye'
    return std::make_unique<OfferService>(options, pool_, publisher_failpoints_);
  }

  const TempFolder folder_;
  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
};

TEST_F(HostileReceiversTest, CostAnHonestOneNothing) {
  const auto service = MakePublisher();
  const PublishedWeights published(*service, weights_, "run", 1);
  std::atomic<std::size_t> taken{0}, lost{0};
  std::jthread honest([&](const std::stop_token& stop) {
    const auto expected = BytesOf(schedule_, weights_);
    while (!stop.stop_requested() || taken == 0) {
      CollectingSink sink;
      try {
        Open(*service, "inproc")->Fetch(schedule_, {}, sink, Soon());
        for (std::uint32_t i = 0; i < expected.size(); ++i) ASSERT_EQ(sink.chunks[i], expected[i]) << i;
        ++taken;
      } catch (const Error& error) {
        std::cout << "an honest receiver: " << error.what() << std::endl;
        if (++lost > 100) return;
      }
    }
  });
  // What they subscribe is their own, or honest receivers would be sent to relays that these claim to be.
  const std::size_t messages = FuzzInputs(3'000);
  HostileReceivers(service->endpoint(), 31, SomeSchedule(true)).Say(messages);
  honest.request_stop();
  honest.join();
  EXPECT_GT(taken, 0U);
  // In a long run the publisher may be silent for its 5 s, where the crowd has more to say than the machine can take.
  EXPECT_LE(lost, messages / 100'000);
}

class HostileFollowersTest : public RelayTest {};

TEST_F(HostileFollowersTest, CostThoseThatFollowARelayNothing) {
  Taker first(*service_, copying_);
  const Relay& relay = first.Relays(pool_);
  first.Fetch(schedule_);
  HostileReceivers(relay.endpoint(), 32, schedule_).Say(FuzzInputs(3'000) / 10);  // over TCP: ports are few
  Taker second(*service_, copying_);
  second.Fetch(schedule_);
  second.ExpectTook(schedule_, weights_);
  EXPECT_EQ(second.relayed(), schedule_.total_bytes());
}

}  // namespace
}  // namespace layercast::testing
