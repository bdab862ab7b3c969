// Where Prometheus asks: what it is answered, and which addresses are bound at all. In a build without prometheus-cpp
// whoever wants metrics is told so.
#include "src/metrics/metrics_endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>

#include "layercast/error.h"
#include "src/base/unique_fd.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A connection on which that was asked for; none if nobody listens.
UniqueFd Ask(const std::string& address, const std::string& path) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) return {};
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  return socket;
}

std::string Get(const std::string& address, const std::string& path = "/metrics") {
  const UniqueFd socket = Ask(address, path);
  if (!socket) return "nobody listens";
  std::string answer;
  char block[4096];
  for (ssize_t got = 0; (got = ::recv(socket.get(), block, sizeof(block), 0)) > 0;) {
    answer.append(block, static_cast<std::size_t>(got));
  }
  return answer;
}

class MetricsEndpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      MetricsEndpoint("127.0.0.1:0", false, [] { return MetricSamples(); });
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUnsupported);
      ASSERT_THAT(error.what(), HasSubstr("this build has no metrics: prometheus-cpp"));
      GTEST_SKIP() << "prometheus-cpp is not in this build";
    }
  }
};

TEST_F(MetricsEndpointTest, AnswersWithWhatIsCollectedWhenItIsAsked) {
  std::atomic<int> asked{0};
  const MetricsEndpoint endpoint("localhost:0", false, [&] {
    MetricSamples samples;
    samples.Expect("layercast_engine_");
    samples.Add("layercast_engine_served_step", {"run \"17\""}, ++asked);
    Durations durations;
    durations.Add(0.002);
    samples.Add("layercast_engine_pause_seconds", {}, durations);
    return samples;
  });
  EXPECT_THAT(endpoint.address(), ::testing::StartsWith("127.0.0.1:"));
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(Get(endpoint.address()), HasSubstr("layercast_engine_served_step{lineage=\"run \\\"17\\\"\"} 1\n"));
  const std::string answer = Get(endpoint.address());
  EXPECT_THAT(answer, HasSubstr("layercast_engine_served_step{lineage=\"run \\\"17\\\"\"} 2\n"));
  EXPECT_THAT(answer, HasSubstr("# TYPE layercast_engine_pause_seconds histogram"));
  EXPECT_THAT(answer, HasSubstr("layercast_engine_pause_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(answer, HasSubstr("layercast_engine_pause_seconds_bucket{le=\"0.0025\"} 1\n"));
  EXPECT_THAT(answer, HasSubstr("layercast_engine_pause_seconds_bucket{le=\"+Inf\"} 1\n"));
  EXPECT_THAT(answer, HasSubstr("# TYPE layercast_engine_state gauge")) << "a family without a value just now";
  EXPECT_THAT(Get(endpoint.address(), "/etc/passwd"), HasSubstr(" 404 "));
}

TEST_F(MetricsEndpointTest, WhatCannotBeCollectedIsNoMetricAndNoEnd) {
  std::atomic<bool> broken{true};
  const MetricsEndpoint endpoint("127.0.0.1:0", false, [&] {
    if (broken) throw Error(ErrorCode::kUnavailable, "a rank is gone");
    MetricSamples samples;
    samples.Add("layercast_engine_staged_bytes", 7);
    return samples;
  });
  EXPECT_THAT(Get(endpoint.address()), Not(HasSubstr("layercast_")));
  broken = false;
  EXPECT_THAT(Get(endpoint.address()), HasSubstr("layercast_engine_staged_bytes 7\n"));
}

TEST_F(MetricsEndpointTest, WhoLeavesBeforeTheAnswerCostsNothingThoughSigpipeIsNotIgnored) {
  struct sigaction kept = {};
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &usual, &kept), 0);
  const MetricsEndpoint endpoint("127.0.0.1:0", false, [] {
    MetricSamples samples;
    for (int i = 0; i < 20'000; ++i) samples.Add("layercast_engine_served_step", {std::to_string(i)}, i);
    return samples;
  });
  struct sigaction now = {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
  for (int i = 0; i < 5; ++i) Ask(endpoint.address(), "/metrics");  // and hangs up
  EXPECT_THAT(Get(endpoint.address()), HasSubstr("lineage=\"19999\""));
  ::sigaction(SIGPIPE, &kept, nullptr);
}

TEST_F(MetricsEndpointTest, AnAddressThatIsTakenIsNamed) {
  const auto nothing = [] { return MetricSamples(); };
  auto first = std::make_unique<MetricsEndpoint>("127.0.0.1:0", false, nothing);
  const std::string taken = first->address();
  EXPECT_THAT(ErrorOf([&] { MetricsEndpoint(taken, false, nothing); }, ErrorCode::kUnavailable),
              HasSubstr("metrics address '" + taken + "': it cannot be bound"));
  first.reset();
  EXPECT_EQ(Get(taken), "nobody listens");
}

TEST_F(MetricsEndpointTest, BeyondLoopbackIsForThoseWhoSaySo) {
  const auto nothing = [] { return MetricSamples(); };
  for (const char* address : {"0.0.0.0:0", "*:0", "[::]:0", "10.0.0.1:9400", "eth0:9400"}) {
    EXPECT_THAT(ErrorOf([&] { MetricsEndpoint(address, false, nothing); }, ErrorCode::kInvalidArgument),
                HasSubstr("it can be reached from other hosts"));
  }
  const MetricsEndpoint open("0.0.0.0:0", true, nothing);
  EXPECT_THAT(Get(open.address()), HasSubstr(" 200 OK"));
}

TEST_F(MetricsEndpointTest, WhatIsNoAddressIsRefused) {
  for (const char* address : {"9400", ":9400", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:*", "http://127.0.0.1:9400",
                              "127.0.0.1:1,127.0.0.1:2"}) {
    EXPECT_THAT(
        ErrorOf([&] { MetricsEndpoint(address, true, [] { return MetricSamples(); }); }, ErrorCode::kInvalidArgument),
        HasSubstr("expected HOST:PORT"))
        << address;
  }
}

}  // namespace
}  // namespace layercast::testing
