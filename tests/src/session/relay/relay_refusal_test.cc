// Endpoints and hosts of relays that nobody takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "src/session/relay/relay.h"
#include "src/session/relay_tree/relay_desk.h"
#include "tests/support/error_of.h"
#include "tests/support/session/relaying.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(RelayTest, AnEndpointThatStandsForAllAddressesIsRefused) {
  Taker taker(*service_, copying_);
  EXPECT_THAT(ErrorOf([&] {
                Relay({.endpoint = "tcp://0.0.0.0:0", .keys = Keys::From({.insecure = true})}, pool_, taker.failpoints);
              }),
              HasSubstr("relay endpoint 'tcp://0.0.0.0:0': expected an address that other receivers reach"));
}

TEST_F(RelayTest, WhatIsNoEndpointIsRefused) {
  RawTaker taker(*service_);
  taker.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, true, "nonsense", 1});
  EXPECT_THAT(taker.Refusal(), HasSubstr("nonsense"));
}

TEST_F(RelayTest, AnEndpointOrAHostOfGreatLengthIsRefused) {
  RawTaker taker(*service_);
  const std::string endpoint = "tcp://" + std::string(1000, 'h') + ":1";
  taker.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, true, endpoint, 1});
  EXPECT_EQ(taker.Refusal(), "a relay's endpoint: expected at most 512 bytes, got 1008");
  Outbox outbox;
  RelayDesk planner(outbox);
  EXPECT_EQ(ErrorOf([&] {
              wire::Subscribe subscribe;
              subscribe.takes_relays = true;
              planner.Join({"", 1}, published_.version, std::string(513, 'h'), subscribe);
            }),
            "the boot id of a receiver's host: expected at most 512 bytes, got 513");
}
}  // namespace
}  // namespace layercast::testing
