// What strangers cost a socket that only those with keys may speak to, and that a fleet behind one address gets in all
// the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <zmq.hpp>

#include "src/net/curve/client_keys.h"
#include "src/net/curve/key_check.h"
#include "src/net/keys/key_folder.h"
#include "src/net/zmq/poll_sockets.h"
#include "tests/support/fakes/raw_peer.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

class CurveStrangersTest : public ::testing::Test {
 protected:
  void Listen(const HandshakeBounds& bounds) {
    MakeServerFolder(folder_ / "server");  // whose list has its own key
    keys_ = Keys::From({.folder = (folder_ / "server").string()});
    limits_.emplace(context_, socket_, ConnectionLimits::Options{.most_bytes = 1 << 20, .handshakes = bounds});
    check_.emplace(context_, socket_, keys_, "server");
    socket_.bind("tcp://127.0.0.1:*");
    endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
  }
  void TearDown() override {
    clients_.clear();
    socket_.close();
    check_.reset();
  }
  zmq::socket_t& Connect() {
    zmq::socket_t& client = clients_.emplace_back(peers_, zmq::socket_type::dealer);
    client.set(zmq::sockopt::linger, 0);
    ConnectWithKeys(client, keys_);
    return client;
  }
  template <typename Done>
  [[nodiscard]] bool Until(const Done& done) {
    for (const Deadline deadline = Deadline::After(std::chrono::seconds(30)); !deadline.Passed(); Take()) {
      if (done()) return true;
    }
    return done();
  }
  void Take() {
    std::array<zmq::pollitem_t, 2> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}, check_->item()}};
    PollSockets(items, limits_->look());
    check_->Work(*limits_);
    zmq::message_t id, body;
    while (socket_.recv(id, zmq::recv_flags::dontwait) && socket_.recv(body, zmq::recv_flags::dontwait)) {
      limits_->Heard(body);
      heard_.insert(body.to_string());
    }
    if (const std::string why = limits_->Enforce(); !why.empty()) why_ += why + "\n";
  }

  TempFolder folder_;
  Keys keys_;
  zmq::context_t context_;
  zmq::context_t peers_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  std::optional<KeyCheck> check_;
  zmq::socket_t socket_{context_, zmq::socket_type::router};
  std::string endpoint_;
  std::deque<zmq::socket_t> clients_;
  std::set<std::string> heard_;
  std::string why_;
};

constexpr std::chrono::milliseconds kForEver{600'000};

TEST_F(CurveStrangersTest, AreNotThoseWhoseKeyWasAdmittedThoughTheySayNothing) {
  Listen({.keyed = true, .most = 2, .time = kForEver, .grace = std::chrono::milliseconds(0)});
  for (int i = 0; i < 6; ++i) {
    zmq::socket_t client(peers_, zmq::socket_type::dealer);
    SocketEvents events(peers_, client, ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    ConnectWithKeys(client, keys_);
    client.connect(endpoint_);
    ASSERT_TRUE(Until([&] { return events.Next().has_value(); }));
    ASSERT_EQ(zmq_socket_monitor(client.handle(), nullptr, 0), 0);
    clients_.push_back(std::move(client));
  }
  for (const Deadline enough = Deadline::After(5 * MessageMeter::kLook); !enough.Passed();) Take();
  EXPECT_EQ(limits_->size(), 6U);
  EXPECT_EQ(why_, "");
}

TEST_F(CurveStrangersTest, AreCutOnceTheyHaveSentMoreThanAHandshakeHas) {
  Listen({.keyed = true, .time = kForEver});
  const RawPeer brief(endpoint_);
  const RawPeer talks(endpoint_);
  const std::string begun_command("\6\0\0\0\0\0\x08\0\0", 9);  // of 512 KiB
  brief.Send(ZmtpGreeting("CURVE") + begun_command + std::string(2048, 'x'));
  talks.Send(ZmtpGreeting("CURVE") + begun_command + std::string(8192, 'x'));
  EXPECT_TRUE(Until([&] { return talks.IsCut(); }));
  EXPECT_THAT(why_, HasSubstr("each of at most 4096 bytes"));
  EXPECT_FALSE(brief.IsCut());
}

TEST_F(CurveStrangersTest, KeepNoneOf256EnginesOutThatComeBackAtOnceBehindOneAddress) {
  constexpr std::size_t kEngines = 256;
  Listen({.keyed = true});
  std::deque<RawPeer> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(endpoint_);
  for (std::size_t i = 0; i < kEngines; ++i) {
    zmq::socket_t& client = Connect();
    client.connect(endpoint_);
    client.send(zmq::buffer("engine " + std::to_string(i)), zmq::send_flags::dontwait);
  }
  EXPECT_TRUE(Until([&] { return heard_.size() == kEngines; })) << heard_.size() << " were heard within 30 s";
}

}  // namespace
}  // namespace layercast::testing
