// RPC servers and clients that ask for much and take nothing: it costs them their connection, and nobody else anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/control/rpc.h"
#include "tests/support/fakes/raw_zmtp.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

Deadline InTime() { return Deadline::After(std::chrono::seconds(20)); }

TEST(HostileRpcClient, IsAnsweredWithNothingLongThatItSaidItself) {
  RpcServer server("tcp://127.0.0.1:0", Keys(),
                   [](const auto& /*method*/, const Json& params, const RpcReply& reply) { reply.Result(params); });
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvtimeo, 20'000);
  socket.connect(server.endpoint());
  const std::string longer(257, 'x');
  const std::vector<std::pair<Json, std::string>> refused = {
      {{{"ping", longer}}, "expected an object with 'id', 'method' and 'params' (docs: RPC.md)"},
      {{{"id", longer}, {"method", "echo"}}, "'id': expected a number, got string"},
      {{{"id", 7}, {"method", longer}}, "'method': expected at most 256 bytes, got 257"}};
  for (const auto& [request, why] : refused) {
    socket.send(zmq::buffer(request.dump()));
    zmq::message_t answer;
    ASSERT_TRUE(socket.recv(answer)) << why;
    EXPECT_EQ(Json::parse(answer.to_string_view())["error"]["message"], why);
  }
}

// Sends what it likes, and reads nothing before its end.
class DeafClient : public testing::RawZmtp {
 public:
  explicit DeafClient(const std::string& endpoint) : RawZmtp(Connect(endpoint)) {}
  void Say(const std::string& text) { Send(Frame(0, text)); }
};

TEST(HostileRpcClient, ThatDoesNotTakeItsAnswersLosesItsConnection) {
  constexpr std::size_t kAnswer = 8 << 20;
  constexpr std::size_t kAnswers = 12;  // more than may wait for a client, and than the system's buffers hold
  std::mutex mutex;
  std::vector<RpcReply> replies;
  RpcServer server("tcp://127.0.0.1:0", Keys(),
                   [&](const std::string& method, const Json& params, const RpcReply& reply) {
                     const std::lock_guard lock(mutex);
                     if (method == "hold") return replies.push_back(reply);
                     reply.Result({{"held", replies.size()}, {"params", params}});
                   });
  DeafClient deaf(server.endpoint());
  for (std::size_t i = 0; i < kAnswers; ++i) deaf.Say(R"({"id": 1, "method": "hold"})");
  RpcClient client("engine", server.endpoint());
  while (client.Call("held", Json::object(), InTime())["held"] != kAnswers) {
  }
  std::vector<RpcReply> held;
  {
    const std::lock_guard lock(mutex);
    held = replies;
  }
  ::testing::internal::CaptureStderr();
  for (const RpcReply& reply : held) reply.Result(std::string(kAnswer, 'x'));
  EXPECT_EQ(client.Call("held", {{"still", "here"}}, InTime())["params"]["still"], "here");  // sent after all of these
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("does not take its answers"));
  EXPECT_LT(deaf.ReadToTheEnd(), kAnswer * kAnswers);
}

}  // namespace
}  // namespace layercast
