#include "src/net/zmq/endpoint.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

TEST(Endpoint, NamesItsHost) {
  EXPECT_EQ(HostOf("tcp://127.0.0.1:7700"), "127.0.0.1");
  EXPECT_EQ(HostOf("tcp://[::1]:0"), "[::1]");
  EXPECT_EQ(HostOf("tcp://127.0.0.1:65535"), "127.0.0.1");
  EXPECT_EQ(HostOf("tcp://127.0.0.1:*"), "127.0.0.1");
  EXPECT_EQ(HostOf("ipc:///tmp/engine"), "");
  for (const char* wrong :
       {"", "127.0.0.1:7700", "tcp://", "tcp://host", "tcp://host:", "udp://host:1", "tcp://host:abc",
        "tcp://host:99999", "tcp://host:65536", "tcp://host:-1", "tcp://host:7 ", "tcp://a:1,tcp://b:2"}) {
    EXPECT_THROW(HostOf(wrong), Error) << wrong;
  }
}

TEST(Endpoint, OfSeveralMayHaveBlanksBesideTheCommas) {
  const std::vector<std::string> two = {"tcp://a:1", "ipc:///tmp/a b"};
  for (const char* list : {"tcp://a:1,ipc:///tmp/a b", "tcp://a:1, ipc:///tmp/a b", " tcp://a:1 \t,ipc:///tmp/a b "}) {
    EXPECT_EQ(SplitEndpoints(list), two) << list;
  }
  for (const char* wrong : {"", " ", "tcp://a:1,", "tcp://a:1, ,tcp://b:2"}) {
    EXPECT_THROW(SplitEndpoints(wrong), Error) << wrong;
  }
}

TEST(Endpoint, OfAllAddressesIsReachedAtTheOneThatAnswered) {
  EXPECT_EQ(AsReached("tcp://0.0.0.0:7701", "tcp://10.1.2.3:7700"), "tcp://10.1.2.3:7701");
  EXPECT_EQ(AsReached("tcp://[::]:7701", "tcp://[fd00::7]:7700"), "tcp://[fd00::7]:7701");
  EXPECT_EQ(AsReached("tcp://10.9.9.9:7701", "tcp://10.1.2.3:7700"), "tcp://10.9.9.9:7701");
  EXPECT_EQ(AsReached("tcp://0.0.0.0:7701", "ipc:///tmp/engine"), "tcp://0.0.0.0:7701");
}

Deadline InPatience() { return Deadline::After(std::chrono::seconds(60)); }

TEST(Endpoint, OfANameIsReachedByIpv4AsLongAsItHasSuchAnAddress) {
  addrinfo ipv4{};
  ipv4.ai_family = AF_INET;
  addrinfo ipv6{};
  ipv6.ai_family = AF_INET6;
  EXPECT_EQ(PreferredAddress(&ipv6), &ipv6);
  EXPECT_EQ(PreferredAddress(&ipv4), &ipv4);
  ipv6.ai_next = &ipv4;
  EXPECT_EQ(PreferredAddress(&ipv6), &ipv4);
}

// ".invalid" is of no domain (RFC 6761).
TEST(Endpoint, AHostThatNobodyKnowsIsNamed) {
  for (const char* known : {"tcp://localhost:1", "tcp://127.0.0.1:1", "ipc:///tmp/engine"}) {
    EXPECT_FALSE(ReachedByIpv6(known, InPatience())) << known;
  }
  EXPECT_TRUE(ReachedByIpv6("tcp://[::1]:1", InPatience()));
  const std::string error = testing::ErrorOf(
      [] { static_cast<void>(ReachedByIpv6("tcp://engine-7.invalid:7800", InPatience())); }, ErrorCode::kUnavailable);
  EXPECT_NE(error.find("'tcp://engine-7.invalid:7800'"), std::string::npos) << error;
  EXPECT_NE(error.find("host 'engine-7.invalid'"), std::string::npos) << error;
}

TEST(Endpoint, IsBoundByTheAddressOfAHostsName) {
  EXPECT_EQ(AsBindable("tcp://localhost:7700"), "tcp://127.0.0.1:7700");
  for (const char* as_it_is : {"tcp://10.1.2.3:0", "tcp://*:7700", "tcp://0.0.0.0:*", "tcp://[::1]:0",
                               "tcp://eth0.invalid:1", "ipc:///tmp/e"}) {
    EXPECT_EQ(AsBindable(as_it_is), as_it_is);
  }
}

TEST(Endpoint, BeyondLoopbackIsRefusedUnlessAllowed) {
  for (const char* loopback :
       {"tcp://127.0.0.1:0", "tcp://127.3.4.5:1", "tcp://localhost:1", "tcp://[::1]:1", "ipc://x"}) {
    EXPECT_NO_THROW(CheckBindable(loopback, false)) << loopback;
  }
  EXPECT_THROW(CheckBindable("tcp://0.0.0.0:7700", false), Error);
  EXPECT_THROW(CheckBindable("tcp://*:7700", false), Error);
  EXPECT_NO_THROW(CheckBindable("tcp://0.0.0.0:7700", true));
}

}  // namespace
}  // namespace layercast
