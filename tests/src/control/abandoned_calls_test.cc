// Calls whose answers nobody waits for any more: a server is told of each, and of no other.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "src/control/open_calls.h"
#include "src/control/rpc.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

constexpr std::chrono::seconds kUntilLate{20};

Deadline BeforeItIsLate() { return Deadline::After(kUntilLate); }

// Whether it stops, waiting for that.
bool Stops(const std::stop_token& token) {
  std::promise<void> stopped;
  const std::stop_callback tell(token, [&] { stopped.set_value(); });
  return stopped.get_future().wait_for(kUntilLate) == std::future_status::ready;
}

// A server that answers "echo", and holds every other call.
class AbandonedCalls : public ::testing::TestWithParam<std::string> {
 protected:
  AbandonedCalls()
      : server_(GetParam() == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + (folder_ / "engine").native(), Keys(),
                [this](const std::string& method, const Json& params, const RpcReply& reply) {
                  if (method == "echo") return reply.Result(params);
                  held_.at(method).set_value(reply);
                }) {}

  static std::map<std::string, std::promise<RpcReply>> Both() {
    std::map<std::string, std::promise<RpcReply>> both;
    both["first"];
    both["second"];
    return both;
  }
  // The call that is, or will be, held under this name.
  RpcReply Held(const std::string& method) {
    std::future<RpcReply> held = held_.at(method).get_future();
    if (held.wait_for(kUntilLate) != std::future_status::ready)
      throw std::runtime_error("no call '" + method + "' came");
    return held.get();
  }
  // Returns when the server has taken what had been sent to it.
  void AwaitEcho() { RpcClient("engine", server_.endpoint()).Call("echo", Json::object(), BeforeItIsLate()); }

  const TempFolder folder_;
  std::map<std::string, std::promise<RpcReply>> held_ = Both();  // by method
  RpcServer server_;
};

INSTANTIATE_TEST_SUITE_P(Over, AbandonedCalls, ::testing::Values("tcp", "ipc"),
                         [](const auto& scheme) { return scheme.param; });

// A client that does as it is told, one message after another.
class RawClient {
 public:
  explicit RawClient(const std::string& endpoint) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.connect(endpoint);
  }
  void Say(const Json& message) { socket_.send(zmq::buffer(message.dump()), zmq::send_flags::none); }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

TEST_P(AbandonedCalls, AreThoseWhoseClientHasGone) {
  auto goes = std::make_unique<RawClient>(server_.endpoint());
  RawClient stays(server_.endpoint());
  goes->Say({{"id", 1}, {"method", "first"}});
  stays.Say({{"id", 1}, {"method", "second"}});
  const RpcReply first = Held("first"), second = Held("second");
  EXPECT_FALSE(first.abandoned().stop_requested());
  goes.reset();
  EXPECT_TRUE(Stops(first.abandoned()));
  EXPECT_FALSE(second.abandoned().stop_requested()) << "another client's, which is still there";
}

TEST_P(AbandonedCalls, AreThoseThatTheirDeadlineHasEnded) {
  RpcClient client("engine", server_.endpoint());
  std::stop_source stop;
  std::future<void> call = std::async(std::launch::async, [&] {
    EXPECT_THROW(client.Call("first", Json::object(), BeforeItIsLate().OrStop(stop.get_token())), Error);
  });
  const RpcReply first = Held("first");
  EXPECT_FALSE(first.abandoned().stop_requested());
  stop.request_stop();
  call.get();
  EXPECT_TRUE(Stops(first.abandoned())) << "the client is there, and waits for it no longer";
  EXPECT_EQ(client.Call("echo", {{"still", "here"}}, BeforeItIsLate())["still"], "here");
}

TEST_P(AbandonedCalls, AreThoseThatTheirClientCancelsAndNoOthersOfIt) {
  RawClient client(server_.endpoint());
  client.Say({{"id", 1}, {"method", "first"}});
  client.Say({{"id", 2}, {"method", "second"}});
  const RpcReply first = Held("first"), second = Held("second");
  client.Say({{"cancel", 2}});
  EXPECT_TRUE(Stops(second.abandoned()));
  EXPECT_FALSE(first.abandoned().stop_requested());
}

TEST_P(AbandonedCalls, CannotBeCancelledByAnotherClient) {
  RawClient client(server_.endpoint()), other(server_.endpoint());
  client.Say({{"id", 1}, {"method", "first"}});
  const RpcReply first = Held("first");
  other.Say({{"id", 1}, {"method", "second"}});
  const RpcReply second = Held("second");
  other.Say({{"cancel", 1}});
  EXPECT_TRUE(Stops(second.abandoned()));
  EXPECT_FALSE(first.abandoned().stop_requested());
}

TEST_P(AbandonedCalls, AreNoneThatWereAnswered) {
  std::optional<RpcClient> client(std::in_place, "engine", server_.endpoint());
  std::future<Json> call =
      std::async(std::launch::async, [&] { return client->Call("first", Json::object(), BeforeItIsLate()); });
  const RpcReply first = Held("first");
  first.Result(7);
  EXPECT_EQ(call.get(), 7);
  client.reset();
  AwaitEcho();
  EXPECT_FALSE(first.abandoned().stop_requested());
}

// Two connections of this process, and who calls over them.
class OpenCallsTest : public ::testing::Test {
 protected:
  OpenCallsTest() {
    std::array<int, 2> both{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both.data()), 0);
    one_ = UniqueFd(both[0]);
    other_ = UniqueFd(both[1]);
  }
  Caller One(const std::string& who) const { return {who, PeerConnection(one_.get())}; }
  Caller Other(const std::string& who) const { return {who, PeerConnection(other_.get())}; }

  UniqueFd one_, other_;
  OpenCalls calls_;
};

// By the time that a call is taken, its connection may have ended, and the next one may have got its descriptor.
TEST_F(OpenCallsTest, ACallIsAbandonedOnceAnotherCallerIsHeardOverItsConnection) {
  const std::stop_token first = calls_.Open(One("a"), 1).abandoned;
  const std::stop_token elsewhere = calls_.Open(Other("c"), 1).abandoned;
  calls_.Heard(One("a"));
  EXPECT_FALSE(first.stop_requested());
  calls_.Heard(One("b"));
  EXPECT_TRUE(first.stop_requested());
  const std::stop_token second = calls_.Open(One("b"), 1).abandoned;
  EXPECT_FALSE(second.stop_requested());
  EXPECT_FALSE(elsewhere.stop_requested());
}

TEST_F(OpenCallsTest, ACallOverAConnectionThatHasEndedByThenIsAbandoned) {
  EXPECT_TRUE(calls_.Open({"a", PeerConnection()}, 1).abandoned.stop_requested());
}

TEST_F(OpenCallsTest, OnlyTheCallsOfAConnectionEndWithIt) {
  const std::stop_token first = calls_.Open(One("a"), 1).abandoned;
  const OpenCalls::Call answered = calls_.Open(One("a"), 2);
  const std::stop_token elsewhere = calls_.Open(Other("b"), 1).abandoned;
  calls_.Close(One("a"), answered.number);
  calls_.End(PeerConnection(one_.get()));
  EXPECT_TRUE(first.stop_requested());
  EXPECT_FALSE(answered.abandoned.stop_requested());
  EXPECT_FALSE(elsewhere.stop_requested());
}

}  // namespace
}  // namespace layercast
