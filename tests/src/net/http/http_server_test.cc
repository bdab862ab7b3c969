// A server of HTTP among clients that are honest, slow, endless, silent or gone.
#include "src/net/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/net/wake_up.h"
#include "tests/support/error_of.h"
#include "tests/support/http_client.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class HttpServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      HttpServer({.bind = "127.0.0.1:0"}, Echo);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnsupported);
      GTEST_SKIP() << "cpp-httplib is not in this build";
    }
  }

  static HttpAnswer Echo(const HttpRequest& request) {
    return JsonAnswer({{"method", request.method}, {"path", request.path}, {"body", request.body}});
  }
  // With bounds that a test can reach.
  static HttpServerOptions Impatient(std::chrono::milliseconds to_ask = std::chrono::seconds(20)) {
    return {.bind = "127.0.0.1:0", .bounds = {.head_bytes = 2000, .body_bytes = 1000, .to_ask = to_ask}};
  }
};

TEST_F(HttpServerTest, AnswersWhatItIsAsked) {
  const HttpServer server({.bind = "localhost:0"}, Echo);
  EXPECT_THAT(server.address(), StartsWith("127.0.0.1:"));
  const std::string posted = HttpClient(server.address()).Post("/some%20where?x=1", "the body").HearAll();
  EXPECT_THAT(posted, AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("Content-Type: application/json\r\n"),
                            HasSubstr("Connection: close\r\n"), HasSubstr("X-Content-Type-Options: nosniff\r\n")));
  EXPECT_THAT(posted, HasSubstr(R"({"method":"POST","path":"/some where","body":"the body"})"));
  const std::string got = HttpClient(server.address())
                              .Get("/x", "Host: localhost\r\nRange: bytes=1-2\r\nAccept-Encoding: gzip\r\n")
                              .HearAll();
  EXPECT_THAT(got, AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr(R"({"method":"GET","path":"/x","body":""})")));
  EXPECT_THAT(HttpClient(server.address()).Say("HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n").HearAll(),
              AllOf(StartsWith("HTTP/1.1 200 "), Not(HasSubstr("method"))));
}

TEST_F(HttpServerTest, TakesABodyInPieces) {
  const HttpServer server(Impatient(), Echo);
  const std::string head =
      "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_THAT(HttpClient(server.address()).Say(head + "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").HearAll(),
              HasSubstr(R"("body":"abcde")"));
  const std::string much = "190\r\n" + std::string(400, 'x') + "\r\n";
  EXPECT_THAT(HttpClient(server.address()).Say(head + much + much + much + much).HearAll(),
              AllOf(StartsWith("HTTP/1.1 413 "), HasSubstr("expected at most 1000 bytes")));
}

TEST_F(HttpServerTest, RefusesWhatIsTooLongBeforeItIsRead) {
  const HttpServer server(Impatient(), Echo);
  EXPECT_THAT(HttpClient(server.address()).Post("/x", std::string(1001, 'x')).HearAll(), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(HttpClient(server.address()).Post("/x", std::string(1000, 'x')).HearAll(), StartsWith("HTTP/1.1 200 "));
  const std::string headers = "A: " + std::string(1000, 'a') + "\r\nB: " + std::string(1500, 'b') + "\r\n";
  EXPECT_THAT(HttpClient(server.address()).Get("/x", "Host: localhost\r\n" + headers).HearAll(),
              Not(HasSubstr(" 200 ")));
}

TEST_F(HttpServerTest, EndsARequestThatDrips) {
  const HttpServer server(Impatient(std::chrono::milliseconds(200)), Echo);
  HttpClient silent(server.address());
  EXPECT_EQ(silent.HearAll(), "");
  HttpClient drips(server.address());
  drips.Say("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\nabc");
  EXPECT_THAT(drips.HearAll(), AllOf(StartsWith("HTTP/1.1 408 "), HasSubstr("took too long")));
}

TEST_F(HttpServerTest, SaysWhatItDidNotUnderstand) {
  const HttpServer server({.bind = "127.0.0.1:0"}, Echo);
  for (const char* nonsense :
       {"nonsense\r\n\r\n", "GET  HTTP/9\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n"}) {
    EXPECT_THAT(HttpClient(server.address()).Say(nonsense).HearAll(), Not(HasSubstr(" 200 "))) << nonsense;
  }
  EXPECT_THAT(HttpClient(server.address()).Say("PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n").HearAll(),
              HasSubstr(" 405 "));
  EXPECT_THAT(HttpClient(server.address()).Get("/").HearAll(), HasSubstr(" 200 "));
}

TEST_F(HttpServerTest, StreamsPieceAfterPieceAndKnowsWhenTheClientHasGone) {
  const WakeUp next;
  const WakeUp ended;
  const HttpServer server({.bind = "127.0.0.1:0"}, [&](const HttpRequest& request) {
    const auto piece = [&, &connection = request.connection, count = 0]() mutable -> std::optional<std::string> {
      if (count++ == 0) return "first\n\n";
      const bool rang = connection.Await(next);
      if (!rang) ended.Ring();
      next.Clear();
      return rang ? std::optional<std::string>("more\n\n") : std::nullopt;
    };
    return HttpAnswer{.type = "text/event-stream", .next = piece};
  });
  HttpClient client(server.address());
  EXPECT_THAT(client.Get("/").HearUntil("first\n\n"), HasSubstr("text/event-stream"));
  next.Ring();
  EXPECT_THAT(client.HearUntil("more\n\n"), HasSubstr("more\n\n"));
  client.Leave();
  pollfd wait{ended.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 20'000), 1);
}

TEST_F(HttpServerTest, EndsAnAnswerThatNobodyTakes) {
  const WakeUp ended;
  HttpServerOptions options = Impatient();
  options.bounds.to_take = std::chrono::milliseconds(100);
  const HttpServer server(options, [&](const HttpRequest&) {
    const auto told = std::shared_ptr<void>(nullptr, [&](void*) { ended.Ring(); });  // once the answer goes
    return HttpAnswer{.next = [told] { return std::optional(std::string(1 << 20, 'x')); }};
  });
  HttpClient client(server.address());
  client.Get("/");
  pollfd wait{ended.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wait, 1, 20'000), 1);
}

TEST_F(HttpServerTest, ItsEndIsThatOfWhoeverWaits) {
  const WakeUp begun;
  const WakeUp never;
  auto server = std::make_unique<HttpServer>(HttpServerOptions{.bind = "127.0.0.1:0"}, [&](const HttpRequest& request) {
    begun.Ring();
    return request.connection.Await(never) ? JsonAnswer({}) : ErrorAnswer(503, "cancelled", "the end");
  });
  HttpClient client(server->address());
  client.Get("/");
  pollfd wait{begun.fd(), POLLIN, 0};
  ASSERT_EQ(::poll(&wait, 1, 20'000), 1);
  server.reset();
  EXPECT_THAT(client.HearAll(), AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Retry-After: 1")));
}

TEST_F(HttpServerTest, StrangersThatSayNothingKeepNobodyOut) {
  const HttpServer server({.bind = "127.0.0.1:0", .bounds = {.in_peace = std::chrono::milliseconds(0)}}, Echo);
  std::deque<HttpClient> strangers;
  for (std::size_t i = 0; i < 3 * HttpServer::kMostAsking; ++i) strangers.emplace_back(server.address());
  EXPECT_THAT(HttpClient(server.address()).Get("/").HearAll(), HasSubstr(" 200 "));
  EXPECT_EQ(strangers.front().HearAll(), "") << "the oldest was cut";
}

TEST_F(HttpServerTest, ManyWhoComeAtOneMomentAreNoStrangers) {
  const HttpServer server({.bind = "127.0.0.1:0", .bounds = {.in_peace = std::chrono::minutes(1)}}, Echo);
  std::deque<HttpClient> many;
  for (std::size_t i = 0; i < 3 * HttpServer::kMostAsking; ++i) many.emplace_back(server.address());
  for (HttpClient& client : many) client.Get("/");
  for (HttpClient& client : many) EXPECT_THAT(client.HearAll(), HasSubstr(" 200 "));
}

TEST_F(HttpServerTest, AnswersNobodyWithoutTheKey) {
  const TempFolder folder;
  folder.Write("key", "a-key-of-some-length\n");
  ASSERT_EQ(::chmod((folder / "key").c_str(), 0600), 0);
  std::atomic<int> handled{0};
  const HttpServer server({.bind = "127.0.0.1:0", .key_file = folder / "key", .open_paths = {"/health"}},
                          [&](const HttpRequest& request) {
                            ++handled;
                            return Echo(request);
                          });
  EXPECT_THAT(HttpClient(server.address()).Post("/x", "{}").HearAll(),
              AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("WWW-Authenticate: Bearer")));
  EXPECT_EQ(handled, 0);
  EXPECT_THAT(HttpClient(server.address()).Post("/x", "{}", "Authorization: Bearer a-key-of-some-length\r\n").HearAll(),
              HasSubstr(" 200 "));
  EXPECT_THAT(HttpClient(server.address()).Get("/health").HearAll(), HasSubstr(" 200 "));
}

TEST_F(HttpServerTest, BeyondLoopbackIsForThoseWithAKeyOrWhoSaySo) {
  const auto bind = [](const std::string& to, bool insecure = false, const std::string& key = "") {
    return ErrorOf([&] { HttpServer({.bind = to, .key_file = key, .insecure = insecure}, Echo); });
  };
  const TempFolder folder;
  folder.Write("key", "a-key-of-some-length\n");
  EXPECT_THAT(bind("0.0.0.0:0", false, folder / "key"), HasSubstr("others can read"));
  ASSERT_EQ(::chmod((folder / "key").c_str(), 0600), 0);
  EXPECT_THAT(bind("0.0.0.0:0"), AllOf(HasSubstr("--http-key-file"), HasSubstr("--insecure")));
  EXPECT_EQ(bind("0.0.0.0:0", true), "no error");
  EXPECT_EQ(bind("0.0.0.0:0", false, folder / "key"), "no error");
  for (const char* none : {"", "8000", "127.0.0.1", "127.0.0.1:99999", "http://127.0.0.1:1"}) {
    EXPECT_THAT(bind(none), HasSubstr("expected HOST:PORT")) << none;
  }
  const HttpServer first({.bind = "127.0.0.1:0"}, Echo);
  EXPECT_THAT(bind(first.address()), HasSubstr("cannot be bound"));
  folder.Write("short", "tiny\n");
  ASSERT_EQ(::chmod((folder / "short").c_str(), 0600), 0);
  EXPECT_THAT(bind("127.0.0.1:0", false, folder / "short"), AllOf(HasSubstr("16 to 512"), Not(HasSubstr("tiny"))));
}

}  // namespace
}  // namespace layercast::testing
