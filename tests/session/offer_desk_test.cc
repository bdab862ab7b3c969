// The publisher's half of the protocol, without a socket.
#include "src/session/offer_desk.h"

#include <gtest/gtest.h>

#include "tests/session/publishing.h"

namespace layercast::testing {
namespace {

// The trainer withdraws whenever it likes, also while a receiver is being welcomed: that one either reads the version
// until it is done, or never gets it.
TEST(OfferDesk, AVersionThatIsWithdrawnWhileAReceiverIsWelcomedIsNotReleasedUnderIt) {
  WorkerPool pool(1);
  FailPoints failpoints;
  Outbox outbox;
  HostMemory memory;
  OfferDesk* welcoming = nullptr;
  const auto version =
      std::make_shared<OfferedVersion>(SomeWeights().ToManifest(), Offer{.id = 1, .tensors = {}}, false);
  bool released = false;
  const auto withdraw = [&](const OfferedVersion&) {
    welcoming->Withdraw(version);
    released = version->WaitReleased(Deadline::After(std::chrono::milliseconds(0)));
    return std::vector<wire::ChannelAddress>();
  };
  OfferDesk desk({.name = "publisher"}, {.pool = pool,
                                         .failpoints = failpoints,
                                         .outbox = outbox,
                                         .arena = memory,
                                         .ends = {},
                                         .channels = withdraw,
                                         .take_offer_ids = [](std::uint64_t) { return std::uint64_t{2}; },
                                         .core_seconds = [] { return 0.0; }});
  welcoming = &desk;
  desk.Add(version);
  const SessionKey key{"receiver", 1};
  const std::vector<wire::Message> answers = desk.Take(key, wire::Hello{});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(answers.front()));
  EXPECT_FALSE(released);
  desk.Take(key, wire::Bye{});
  EXPECT_TRUE(version->WaitReleased(Deadline::After(std::chrono::milliseconds(0))));
}

}  // namespace
}  // namespace layercast::testing
