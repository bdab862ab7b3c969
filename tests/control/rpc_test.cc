#include "src/control/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <zmq.hpp>

#include "layercast/error.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Deadline Soon() { return Deadline::After(milliseconds(20'000)); }

void Echo(const std::string& method, const Json& params, const RpcReply& reply) {
  if (method == "echo") return reply.Result(params);
  if (method == "never") return;
  throw Error(ErrorCode::kNotFound, "no method '" + method + "'");
}

TEST(Rpc, AnswersWithResultsAndErrors) {
  RpcServer server("tcp://127.0.0.1:0", false, Echo);
  RpcClient client("engine", server.endpoint());
  EXPECT_EQ(client.Call("echo", {{"a", 1}}, Soon()), (Json{{"a", 1}}));
  EXPECT_THAT([&] { client.Call("fly", Json::object(), Soon()); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("engine tcp://"), HasSubstr("no method 'fly'"))));
}

TEST(Rpc, AnswersMayComeLaterFromAnotherThread) {
  std::thread later;
  RpcServer server("tcp://127.0.0.1:0", false, [&](const std::string&, const Json& params, const RpcReply& reply) {
    later = std::thread([reply, params] { reply.Result(params); });
  });
  RpcClient client("engine", server.endpoint());
  EXPECT_EQ(client.Call("echo", {{"b", 2}}, Soon())["b"], 2);
  later.join();
}

TEST(Rpc, ADeadlineEndsACallThatIsNotAnswered) {
  RpcServer server("tcp://127.0.0.1:0", false, Echo);
  RpcClient client("engine", server.endpoint());
  EXPECT_THAT([&] { client.Call("never", Json::object(), Deadline::After(milliseconds(20))); },
              ThrowsMessage<Error>(HasSubstr("'never'")));
  EXPECT_EQ(client.Call("echo", {{"still", "here"}}, Soon())["still"], "here");
}

TEST(Rpc, ALostPeerIsNoticedBeforeTheDeadline) {
  std::string endpoint;
  {
    const RpcServer server("tcp://127.0.0.1:0", false, Echo);
    endpoint = server.endpoint();
  }
  RpcClient client("engine", endpoint, milliseconds(50));
  try {
    client.Call("echo", Json::object(), Soon());
    FAIL() << "nobody is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr(endpoint));
  }
}

TEST(Rpc, GarbageIsAnsweredWithAnError) {
  RpcServer server("tcp://127.0.0.1:0", false, Echo);
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvtimeo, 20'000);
  socket.connect(server.endpoint());
  for (const std::string text : {"", "{", "[1]", "{\"id\": 3}", "{\"id\": 3, \"method\": 7}", "\xff\xfe"}) {
    socket.send(zmq::buffer(text));
    zmq::message_t answer;
    ASSERT_TRUE(socket.recv(answer)) << text;
    EXPECT_EQ(Json::parse(answer.to_string_view())["error"]["code"], "invalid_argument") << text;
  }
}

}  // namespace
}  // namespace layercast
