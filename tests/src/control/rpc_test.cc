#include "src/control/rpc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <stop_token>
#include <thread>
#include <zmq.hpp>

#include "layercast/error.h"
#include "tests/support/fakes/raw_zmtp.h"
#include "tests/support/no_more_files.h"
#include "tests/support/signals.h"

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
  RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
  RpcClient client("engine", server.endpoint());
  EXPECT_EQ(client.Call("echo", {{"a", 1}}, Soon()), (Json{{"a", 1}}));
  EXPECT_THAT([&] { client.Call("fly", Json::object(), Soon()); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("engine tcp://"), HasSubstr("no method 'fly'"))));
}

TEST(Rpc, AnswersMayComeLaterFromAnotherThread) {
  std::thread later;
  RpcServer server("tcp://127.0.0.1:0", Keys(), [&](const std::string&, const Json& params, const RpcReply& reply) {
    later = std::thread([reply, params] { reply.Result(params); });
  });
  RpcClient client("engine", server.endpoint());
  EXPECT_EQ(client.Call("echo", {{"b", 2}}, Soon())["b"], 2);
  later.join();
}

TEST(Rpc, ADeadlineEndsACallThatIsNotAnswered) {
  RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
  RpcClient client("engine", server.endpoint());
  EXPECT_THAT([&] { client.Call("never", Json::object(), Deadline::After(milliseconds(20))); },
              ThrowsMessage<Error>(HasSubstr("'never'")));
  EXPECT_EQ(client.Call("echo", {{"still", "here"}}, Soon())["still"], "here");
}

TEST(Rpc, ACallThatIsNotAnsweredEndsWhenItIsToStop) {
  std::stop_source stop;
  RpcServer server("tcp://127.0.0.1:0", Keys(), [&](const std::string&, const Json&, const RpcReply&) {
    stop.request_stop();  // and no answer comes
  });
  RpcClient client("engine", server.endpoint());
  try {
    client.Call("never", Json::object(), Soon().OrStop(stop.get_token()));
    FAIL() << "nobody has answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
    EXPECT_THAT(error.what(), ::testing::AllOf(HasSubstr(server.endpoint()), HasSubstr("'never'")));
  }
}

TEST(Rpc, AClientThatCannotOpenASocketNamesItsPeer) {
  const testing::NoMoreFiles hold;
  try {
    RpcClient("engine", "tcp://127.0.0.1:7800");
    FAIL() << "there is no descriptor left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr("engine tcp://127.0.0.1:7800"));
  }
}

TEST(Rpc, ASignalThatAHandlerTakesEndsNeitherTheServersThreadNorACall) {
  const testing::Interruptions signals;
  const pid_t caller = ::gettid();
  RpcServer server("tcp://127.0.0.1:0", Keys(), [&](const std::string&, const Json& params, const RpcReply& reply) {
    testing::Interruptions::Interrupt(caller);  // which waits for the answer
    reply.Result(params);
  });
  RpcClient client("engine", server.endpoint());
  testing::Interruptions::InterruptWaiting("lc-rpc");
  EXPECT_EQ(client.Call("echo", {{"still", "here"}}, Soon())["still"], "here");
}

// Whoever walks one by recursion would need a stack of its depth.
TEST(Rpc, AMessageOfManyLevelsIsRefused) {
  RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvtimeo, 20'000);
  socket.connect(server.endpoint());
  constexpr std::size_t kLevels = 1'000'000;
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  for (const std::string& text : {"{\"ping\":" + deep + "}", "{\"id\":" + deep + ",\"method\":\"echo\"}",
                                  "{\"id\":1,\"method\":\"echo\",\"params\":" + deep + "}"}) {
    socket.send(zmq::buffer(text));
    zmq::message_t answer;
    ASSERT_TRUE(socket.recv(answer));
    EXPECT_THAT(answer.to_string(), HasSubstr("invalid_argument"));
  }
}

TEST(Rpc, AnAnswerThatIsTooLargeIsAnErrorThatSaysSo) {
  RpcServer server("tcp://127.0.0.1:0", Keys(), [](const std::string&, const Json&, const RpcReply& reply) {
    reply.Result(std::string(kMaxRpcBytes, 'x'));
  });
  // To write so much takes a while under a sanitizer, on the thread that answers pings.
  constexpr std::chrono::minutes kPatience{2};
  RpcClient client("engine", server.endpoint(), Keys(), kPatience);
  try {
    client.Call("generate", Json::object(), Deadline::After(kPatience));
    FAIL() << "no message is that large";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.what(), HasSubstr("the answer has 335544"));
    EXPECT_THAT(error.what(), HasSubstr("expected at most 33554432"));
  }
}

TEST(Rpc, ALostPeerIsNoticedBeforeTheDeadline) {
  std::string endpoint;
  {
    const RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
    endpoint = server.endpoint();
  }
  RpcClient client("engine", endpoint, Keys(), milliseconds(50));
  try {
    client.Call("echo", Json::object(), Soon());
    FAIL() << "nobody is there";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr(endpoint));
  }
}

// A new process at the same endpoint says pong, and knows nothing of what the one before was asked.
TEST(Rpc, ACallIsLostWithTheProcessThatWasToAnswerIt) {
  std::promise<void> asked;
  std::optional<RpcServer> server;
  server.emplace("tcp://127.0.0.1:0", Keys(),
                 [&](const std::string&, const Json&, const RpcReply&) { asked.set_value(); });
  const std::string endpoint = server->endpoint();
  std::thread restarting([&] {
    asked.get_future().wait();
    server.reset();
    server.emplace(endpoint, Keys(), Echo);
  });
  RpcClient client("engine", endpoint);
  try {
    client.Call("reload", Json::object(), Soon());
    ADD_FAILURE() << "nobody has answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.what(), "engine " + endpoint + ": the connection was lost, calling 'reload'");
  }
  restarting.join();
  EXPECT_EQ(client.Call("echo", {{"of the", "new one"}}, Soon())["of the"], "new one");
}

// A publisher's endpoint where an engine's is expected: nobody waits for the deadline.
TEST(Rpc, APeerThatSpeaksSomethingElseIsNamedAtItsFirstAnswer) {
  zmq::context_t context(1);
  zmq::socket_t publisher(context, zmq::socket_type::router);
  publisher.set(zmq::sockopt::linger, 0);
  publisher.bind("tcp://127.0.0.1:0");
  const std::string endpoint = publisher.get(zmq::sockopt::last_endpoint);
  std::thread answering([&] {
    zmq::message_t client, request;
    if (!publisher.recv(client) || !publisher.recv(request)) return;
    publisher.send(client, zmq::send_flags::sndmore);
    publisher.send(zmq::str_buffer("LCST\x01"), zmq::send_flags::none);
  });
  RpcClient client("engine", endpoint);
  EXPECT_THAT([&] { client.Call("status", Json::object(), Soon()); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("engine " + endpoint), HasSubstr("'status'"),
                                                    HasSubstr("a publisher's endpoint?"))));
  answering.join();
}

TEST(Rpc, AnEndpointThatIsNoneIsRefusedBeforeACall) {
  EXPECT_THAT([] { RpcClient("engine", "127.0.0.1:7800"); },
              ThrowsMessage<Error>(HasSubstr("endpoint '127.0.0.1:7800': expected tcp://HOST:PORT")));
}

// Making a client waits for nothing, a name server neither.
TEST(Rpc, AHostThatNobodyKnowsIsNamedWhenItIsCalled) {
  RpcClient client("engine", "tcp://engine-7.invalid:7800");
  EXPECT_THAT([&] { client.Call("status", Json::object(), Soon()); },
              ThrowsMessage<Error>(HasSubstr("'tcp://engine-7.invalid:7800': no address is known")));
}

TEST(Rpc, AMessageWithoutAnEndCostsAClientItsConnection) {
  RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
  RpcClient client("engine", server.endpoint());
  EXPECT_TRUE(testing::RawZmtp::Connect(server.endpoint()).IsCut());
  EXPECT_EQ(client.Call("echo", {{"still", "here"}}, Soon())["still"], "here");
}

// While the server is busy, what a client sends waits with the client.
TEST(Rpc, RequestsThatAreNotTakenYetStayWithTheClientThatSendsThem) {
  std::promise<void> taken, release;
  RpcServer server("tcp://127.0.0.1:0", Keys(),
                   [&](const std::string& method, const Json& params, const RpcReply& reply) {
                     if (method == "hold") {
                       taken.set_value();
                       release.get_future().wait();
                     }
                     reply.Result(params);
                   });
  zmq::context_t context(1);
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 1);
  socket.set(zmq::sockopt::sndtimeo, 1000);
  socket.connect(server.endpoint());
  socket.send(zmq::str_buffer(R"({"id": 1, "method": "hold", "params": {}})"));
  taken.get_future().wait();
  const std::string large = R"({"id": 2, "method": "echo", "params": [")" + std::string(1 << 20, 'x') + "\"]}";
  int sent = 0;
  while (sent < 64 && socket.send(zmq::buffer(large))) ++sent;
  EXPECT_LT(sent, 64);
  release.set_value();
  RpcClient client("engine", server.endpoint());
  EXPECT_EQ(client.Call("echo", {{"others", "have their turn"}}, Soon())["others"], "have their turn");
}

TEST(Rpc, AnAnswerWithoutAnEndEndsTheCall) {
  const testing::RawZmtpServer::Listener listener;
  const auto cut = std::async(std::launch::async, [&] { return testing::RawZmtpServer(listener).IsCut(); });
  RpcClient client("engine", listener.endpoint());
  EXPECT_THAT([&] { client.Call("status", Json::object(), Soon()); },
              ThrowsMessage<Error>(HasSubstr("engine " + listener.endpoint() + ", 'status': a message has not ended")));
}

// No pong comes before the answer has.
TEST(Rpc, AnAnswerThatTakesLongerThanAPeerMayBeSilentIsWaitedFor) {
  const testing::RawZmtpServer::Listener listener;
  const auto answered = std::async(std::launch::async, [&] {
    testing::RawZmtpServer(listener).SendSlowly(R"({"id": 1, "result": 5})", 5);  // one for each ping
  });
  RpcClient client("engine", listener.endpoint(), Keys(), milliseconds(1200));
  EXPECT_EQ(client.Call("status", Json::object(), Soon()), 5);
}

TEST(Rpc, GarbageIsAnsweredWithAnError) {
  RpcServer server("tcp://127.0.0.1:0", Keys(), Echo);
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
