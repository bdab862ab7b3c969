// Names of hosts, looked up within a deadline.
#include "src/net/host_lookup.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kNow{0};
constexpr std::chrono::seconds kPatience{60};

addrinfo Stream() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  return hints;
}

TEST(HostLookup, AnAddressNeedsNoResolverAndNoTime) {
  for (const auto& [host, family] :
       {std::pair("127.0.0.1", AF_INET), std::pair("[::1]", AF_INET6), std::pair("::1", AF_INET6)}) {
    const std::optional<HostLookup> lookup = LookUpHost(host, "7700", Stream(), Deadline::After(kNow));
    ASSERT_TRUE(lookup && lookup->addresses != nullptr) << host;
    EXPECT_EQ(lookup->addresses->ai_family, family);
  }
}

// ".invalid" is of no domain (RFC 6761).
TEST(HostLookup, ANameHasAddressesOrAReasonWhyNot) {
  const std::optional<HostLookup> known = LookUpHost("localhost", "7700", Stream(), Deadline::After(kPatience));
  ASSERT_TRUE(known);
  EXPECT_NE(known->addresses, nullptr);
  const std::optional<HostLookup> unknown = LookUpHost("engine.invalid", "1", Stream(), Deadline::After(kPatience));
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->addresses, nullptr);
  EXPECT_NE(unknown->status, 0);
}

// Of a dead name server, say.
TEST(HostLookup, AResolverThatDoesNotAnswerIsNotWaitedForBeyondTheDeadline) {
  struct Gate {
    std::promise<void> open;
    std::promise<void> passed;
  };
  const auto gate = std::make_shared<Gate>();
  EXPECT_FALSE(LookUpWithin(
      [gate] {
        gate->open.get_future().wait();
        gate->passed.set_value();
        return HostLookup();
      },
      Deadline::After(std::chrono::milliseconds(10))));
  gate->open.set_value();
  gate->passed.get_future().wait();  // it ends by itself
}

}  // namespace
}  // namespace layercast
