// Requests that take long to parse: nobody else waits for them, and they cannot pile up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "src/control/rpc.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;

// An engine whose parsing of large requests is held until it is told to go on.
class LargeRequests : public ::testing::Test {
 protected:
  void Listen(std::uint64_t budget) {
    const auto handle = [this](const std::string& method, const Json& params, const RpcReply& reply) {
      const std::lock_guard lock(mutex_);
      handled_.push_back(method);
      reply.Result({{"handled", handled_}, {"params", params.size()}});
    };
    const auto parse = [this](std::string_view text) {
      if (!std::exchange(begun_, true)) begins_.set_value();
      go_on_.wait();
      return Json::parse(text);
    };
    server_.emplace("tcp://127.0.0.1:0", Keys(), handle, RpcServerOptions{budget, parse});
  }
  void TearDown() override { GoOn(); }
  void GoOn() {
    if (!std::exchange(goes_on_, true)) goes_.set_value();
  }
  void AwaitParsing() { ASSERT_EQ(begins_.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready); }
  Json Status() {
    const Deadline in_time = Deadline::After(std::chrono::seconds(20));
    return RpcClient("engine", server_->endpoint()).Call("status", Json::object(), in_time);
  }

  // A client that does as it is told.
  zmq::socket_t Connect() {
    zmq::socket_t socket(context_, zmq::socket_type::dealer);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 20'000);
    socket.connect(server_->endpoint());
    return socket;
  }
  static void Say(zmq::socket_t& socket, const Json& message) { socket.send(zmq::buffer(message.dump())); }
  static Json Hear(zmq::socket_t& socket) {
    zmq::message_t answer;
    return socket.recv(answer) ? Json::parse(answer.to_string_view()) : Json("nothing");
  }
  static Json Large(int id) {
    return {{"id", id}, {"method", "large"}, {"params", {{"text", std::string(1 << 20, 'x')}}}};
  }

  zmq::context_t context_;

 private:
  std::mutex mutex_;
  std::vector<std::string> handled_;  // methods; guarded by mutex_
  std::promise<void> begins_;
  bool begun_ = false;  // on the thread that parses
  std::promise<void> goes_;
  std::shared_future<void> go_on_ = goes_.get_future().share();
  bool goes_on_ = false;
  std::optional<RpcServer> server_;
};

TEST_F(LargeRequests, KeepNobodyWaitingWhileTheyAreParsed) {
  Listen(64 << 20);
  zmq::socket_t client = Connect();
  Say(client, Large(1));
  AwaitParsing();
  EXPECT_THAT(Status()["handled"], ElementsAre("status"));
  Say(client, {{"ping", 7}});
  EXPECT_EQ(Hear(client), (Json{{"pong", 7}})) << "so its sender knows that the engine is there";
  GoOn();
  EXPECT_THAT(Hear(client)["result"]["handled"], ElementsAre("status", "large"));
}

TEST_F(LargeRequests, AreHandledBeforeWhatTheirSenderSaysNext) {
  Listen(64 << 20);
  zmq::socket_t client = Connect();
  Say(client, Large(1));
  Say(client, {{"id", 2}, {"method", "small"}});
  AwaitParsing();
  EXPECT_THAT(Status()["handled"], ElementsAre("status"));
  GoOn();
  EXPECT_EQ(Hear(client)["id"], 1);
  EXPECT_EQ(Hear(client)["id"], 2);
  EXPECT_THAT(Status()["handled"], ElementsAre("status", "large", "small", "status"));
}

TEST_F(LargeRequests, ThatPileUpAreNotHandledAndCostTheirSenderItsConnection) {
  Listen(4 << 20);
  zmq::socket_t client = Connect();
  zmq::socket_t events(context_, zmq::socket_type::pair);
  ASSERT_EQ(zmq_socket_monitor(client.handle(), "inproc://events", ZMQ_EVENT_DISCONNECTED), 0);
  events.set(zmq::sockopt::rcvtimeo, 20'000);
  events.connect("inproc://events");
  for (int id = 1; id <= 8; ++id) Say(client, Large(id));
  AwaitParsing();
  zmq::message_t ended;
  EXPECT_TRUE(events.recv(ended));
  EXPECT_THAT(Status()["handled"], ElementsAre("status"));
  client.close();
  GoOn();
  EXPECT_THAT(Status()["handled"], ElementsAre("status", "status")) << "the client has gone";
}

}  // namespace
}  // namespace layercast
